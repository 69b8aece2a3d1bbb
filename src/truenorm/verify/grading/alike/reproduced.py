"""The test of a reproducer that holds two calls against each other."""

from truenorm.verify.grading.alike.symptom import Symptom
from truenorm.verify.runs.calls import BELOW, IDLE, RUNS

__all__ = ["same_as"]


def same_as(symptom: Symptom) -> tuple[list[str], str]:
    """Return what holds of two calls of a kernel that has the same bits, and what that needs."""
    call = symptom.record.call
    if symptom.guard == "sums":
        return [], f"len({{run(case).tobytes() for _ in range({RUNS})}}) == 1"
    if symptom.guard == "position" and symptom.at:
        places = f"rows = {list(symptom.at)}"
        return [places], "len({row.tobytes() for row in run(case)[rows]}) == 1"
    needed, whole, other = [], "run(case)", "run(case)"
    if symptom.guard == "position":
        other = "run(case.part(slice(None, None, -1)))[::-1]"
    elif symptom.guard == "batch":
        whole = f"run(case)[{call.start}:{call.stop}]"
        other = f"run(case.part(slice({call.start}, {call.stop})))"
    elif symptom.guard == "padding":
        needed = ["from truenorm.verify.batches import padded"]
        numbers = ", ".join(f"float('{each}')" for each in BELOW[call.kind])
        other = f"run(padded(case, [{numbers}]))[:{symptom.case.shape[0]}]"
    elif symptom.guard == "idle":
        needed = ["from truenorm.verify.batches import with_idle_rows"]
        other = f"run(with_idle_rows(case, among={IDLE[call.kind]}))"
    return needed, f"{other}.tobytes() == {whole}.tobytes()"
