"""``python -m truenorm.verify.running.worker``: the process of a subject.

The first request has the target, an operation, which is empty to keep that of the subject, and the
types of a function. The worker answers it with a description of the subject, and each case with a
record. It moves its standard input and output to private descriptors first: what a subject prints
or reads does not reach the judge.
"""

import os
import signal
import sys
from typing import IO

from truenorm.tools.user_files import NotThereError, failure_text
from truenorm.verify.calls import Call
from truenorm.verify.operation import Case
from truenorm.verify.running.loading import load_with_spec
from truenorm.verify.running.process import receive, send
from truenorm.verify.running.records import triton_advice
from truenorm.verify.running.runners import runner_for
from truenorm.verify.types import Array


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return duplicates of stdin and stdout; redirect these to the null device and stderr."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def main() -> int:
    """Answer until there are no more requests."""
    requests, answers = _private_pipes()
    # The judge interrupts a worker to end its program; the worker may have inherited a setting
    # that ignores interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    first = receive(requests, lambda: 0)
    if first is None:
        return 0
    load, _ = first
    try:
        subject, spec = load_with_spec(load["target"], load["operation"], load["dtypes"])
    except NotThereError as missing:
        send(answers, {"cannot": str(missing)}, {})
        return 2
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the file of the subject may fail in any way
        text = failure_text(error)
        reason = f"{load['target']} could not be executed:\n{text}\n{triton_advice(text).lstrip()}"
        send(answers, {"cannot": reason}, {})
        return 2
    send(answers, {"subject": subject.to_description(), "spec": list(spec)}, {})
    runner, inputs = runner_for(subject, in_worker=True), dict[str, Array | None]()
    while (request := receive(requests, lambda: sys.maxsize)) is not None:
        message, inputs = request[0], request[1] or inputs
        case = Case(
            subject.operation,
            message["case"],
            message["dtype"],
            inputs,
            float.fromhex(message["eps"]),
            layout=message["layout"],
        )
        record = runner.run(case, Call(*message["call"]))
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
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
