"""What came back, made up for the tests of causes."""

from collections.abc import Mapping

from truenorm.verify.diagnosis.evidence import Seen
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.running.records import Call, Record
from truenorm.verify.types import Array


def seen(
    case: Case, *calls: tuple[Call | str, Mapping[str, Array | None]], wrong: bool = True
) -> Seen:
    """Return a case with what came back from calls."""
    made = ((call if isinstance(call, Call) else Call(call), results) for call, results in calls)
    return Seen(case, [Record(case.name, call, results) for call, results in made], wrong)


def right(case: Case, output: str) -> Array:
    value = expected(case).values[output]
    assert value is not None
    return value.copy()
