"""Causes of what is in the wrong memory: inputs and results written over, and other state."""

from collections.abc import Sequence

from truenorm.verify.causes.holding import Came
from truenorm.verify.causes.naming import cause_of
from truenorm.verify.causes.seen import Seen, is_answer
from truenorm.verify.runs.calls import INTERLEAVED, LATER, PLAIN, TWICE, others

__all__ = ["of_inputs", "of_large", "of_overwritten", "of_spent", "of_stale"]


def of_inputs(output: str, seen: Sequence[Seen]) -> str:  # noqa: ARG001 (all of them)
    """Say which result stands in the place of each input, if it does wherever that changed."""
    plain = [record for each in seen for record in each.of_kind(PLAIN)]
    names = dict.fromkeys(name for record in plain for name in record.damaged)
    said = []
    for name in names:
        damaged = [record.holds.get(name, ()) for record in plain if name in record.damaged]
        common = [held for held in damaged[0] if all(held in each for each in damaged)]
        if not common:
            return ""
        said.append(f"{' or '.join(common)} is written over {name}")
    return ", and ".join(said)


def of_overwritten(output: str, seen: Sequence[Seen]) -> str:
    """Say whether a result becomes that of the call after it."""
    held = [record.holds.get(output, ()) for each in seen for record in each.of_kind(LATER)]
    if not held or not all(output in names for names in held):
        return ""
    return f"each call writes {output} to the same memory: it holds that of the last call"


def of_stale(output: str, seen: Sequence[Seen]) -> str:
    """Say whether a gradient is right for the rows of another forward pass."""
    for each in (each for each in seen if each.wrong):
        result, case = each.result(output, INTERLEAVED), each.case
        data = {name: others(case)[name] for name in case.operation.inputs_of("data")}
        if result is None or is_answer(case, output, result):
            return ""
        if not is_answer(case.with_inputs(**data), output, result):
            return ""
    return f"backward takes what the latest forward saved: {output} is right for the rows of that"


def of_spent(output: str, seen: Sequence[Seen]) -> str:
    """Say what hypothesis the gradients of a second backward pass are."""
    came = [
        Came(each.case, output, result, right=False)
        for each in seen
        if each.wrong and (result := each.result(output, TWICE)) is not None
    ]
    if not came:
        return ""
    words = cause_of(came, came[0].case.operation.hypotheses(output), partly=False).words
    return f"what forward saved is changed by backward: called again, {words}" if words else ""


def of_large(output: str, seen: Sequence[Seen]) -> str:
    """Say what the elements are that are in no right place of a large call."""
    held = {
        record.holds.get(output, ())
        for each in seen
        for record in each.records
        if each.wrong and output in record.results
    } - {()}
    return f"in one call, {output} is {held.pop()[0]}" if len(held) == 1 else ""
