"""``python -m truenorm.verify.running.worker FILE:NAME OPERATION``: the process of a subject.

The operation may be empty: then it is what the subject says. The process tells what the subject
is, then answers each case with what came back. Its own pipes are moved away first: a subject that
prints, or reads, does not talk to the judge.
"""

import os
import signal
import sys
import traceback
from typing import IO, Any

from truenorm.verify.operation import Case
from truenorm.verify.running.loading import NotThereError, load
from truenorm.verify.running.process import receive, send
from truenorm.verify.running.records import Call
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return input and output of this process, and leave others in their place."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _described(subject: Subject) -> dict[str, Any]:
    return {
        "name": subject.name,
        "dtypes": list(subject.dtypes),
        "also": list(subject.also),
        "seconds": subject.seconds,
        "callable": subject.forward is not None,
        "operation": subject.operation.spec,
        "recipe": subject.recipe,
        "domain": [subject.domain.largest.hex(), subject.domain.kappa.hex()],
        "backward": subject.command is not None or subject.backward is not None,
    }


def _case(subject: Subject, message: dict[str, Any], arrays: dict[str, Array | None]) -> Case:
    return Case(
        subject.operation,
        message["case"],
        message["dtype"],
        arrays,
        float.fromhex(message["eps"]),
        layout=message["layout"],
    )


def main(target: str, operation: str) -> int:
    """Answer until there are no more requests."""
    requests, answers = _private_pipes()
    # The judge interrupts a worker whose program is to be ended; whoever started the judge may
    # have told it to ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        subject = load(target, operation)
    except NotThereError as none:
        send(answers, {"cannot": str(none)}, {})
        return 2
    except Exception:  # the file is not ours: it may fail in any way
        told = f"{target} could not be executed:\n{traceback.format_exc(limit=-3)}"
        send(answers, {"cannot": told}, {})
        return 2
    send(answers, {"subject": _described(subject)}, {})
    runner = runner_for(subject)
    while (request := receive(requests, lambda: sys.maxsize)) is not None:
        message, arrays = request
        record = runner.run(_case(subject, message, arrays), Call(*message["call"]))
        answer = {
            "of": [message["case"], message["call"]],
            "damaged": list(record.damaged),
            "failure": record.failure,
            "seconds": record.seconds,
            "left_out": record.left_out,
            "holds": record.holds,
        }
        send(answers, answer, record.results)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
