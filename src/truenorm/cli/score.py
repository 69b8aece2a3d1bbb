"""``truenorm score``: score a kernel whose writer is rewarded for it."""

import json as json_text
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from truenorm.cli.common import (
    FRESH,
    Dtype,
    JsonOption,
    OperationOption,
    argument,
    option,
    parse_seed,
    progress_bar,
    stop_on,
)
from truenorm.tools import strict_json
from truenorm.tools.command_line import stop
from truenorm.tools.text import printable
from truenorm.verify.operations import as_operation
from truenorm.verify.report.json_report import to_json
from truenorm.verify.running.records import CannotRunError, error_message
from truenorm.verify.running.scored import Server
from truenorm.verify.scores import score_submission
from truenorm.verify.submission import CASES, LARGEST, SECONDS, Form, Norms, Submission


def score_command(
    target: Annotated[
        str, argument("TARGET", "FILE.py:NAME or package.module:NAME; not with --serve.")
    ] = "",
    operation: OperationOption = "layer_norm",
    dtype: Annotated[
        list[Dtype] | None,
        option("TYPE", "Judge this type. Can be repeated.", show_default="float32"),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(metavar="S", help="Draws the cases: a number, or 'fresh' for a new one."),
    ] = FRESH,
    python: Annotated[
        str, typer.Option(metavar="PATH", help="The interpreter of an environment with PyTorch.")
    ] = sys.executable,
    norms: Annotated[
        Norms,
        typer.Option(
            help="If forbidden, a kernel that is seen calling a norm of PyTorch scores 0."
        ),
    ] = "allowed",
    cases: Annotated[int, typer.Option(help="Number of cases of each type.")] = CASES,
    largest: Annotated[float, typer.Option(help="The largest |x|.")] = LARGEST,
    form: Annotated[Form, typer.Option(help="How it is called.")] = "functional",
    signature: Annotated[
        str, option("NAMES", "Its arguments in order, if they have other names.")
    ] = "",
    backward: Annotated[
        str, option("NAME", "A function of the same file, instead of autograd.")
    ] = "",
    device: Annotated[str, typer.Option(help="The device of the tensors.")] = "cpu",
    seconds: Annotated[
        float, typer.Option(help="Time limit of a call; four times that for the first.")
    ] = SECONDS,
    causes: Annotated[
        bool, typer.Option("--causes", help="Also search for the causes of wrong results.")
    ] = False,
    json: JsonOption = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Read submissions from stdin, one JSON object a line.")
    ] = False,
) -> None:
    """Score what a PyTorch kernel computes from 0 to 1.

    The score is a reward for programs that write kernels. Keep the seed from them, and take the
    least score of several seeds. A wrong number on a drawn case is seen. Behaviour is checked
    against mistakes, not against intent: run the command in a sandbox of yours. Linux only.

    \b
        truenorm score submission.py:layer_norm
        truenorm score submission.py:rms_norm --operation rms_norm --json

    With --serve, PyTorch is imported once. Each line of stdin has a target and a seed, and may
    have other options as 'truenorm.verify.score' names them; each is answered by a line of JSON.

    \b
        echo '{"target": "submission.py:layer_norm", "seed": 81}' |
            truenorm score --serve --python /envs/torch/bin/python

    Exit codes:

    \b
        0  scored, also with 0
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    if serve == bool(target):
        stop("give either a TARGET or --serve")
    number = parse_seed(seed)
    with stop_on(ValueError, CannotRunError):
        defaults = Submission(
            target,
            as_operation(operation),
            number,
            dtypes=tuple(dtype or ("float32",)),
            norms=norms,
            cases=cases,
            largest=largest,
            form=form,
            signature=signature,
            backward=backward,
            device=device,
            seconds=seconds,
            causes=causes,
        )
        if serve:
            _serve(python, defaults)
            return
        with progress_bar("scoring"), Server(python) as server:
            result = score_submission(defaults, server)
    if json:
        typer.echo(to_json(result))
        return
    typer.echo(f"{result.value:.3f}")
    for reason in result.reasons:
        typer.echo(printable(reason))


def _serve(python: str, defaults: Submission) -> None:
    """Answer each line of stdin."""
    with Server(python) as server:
        for line in sys.stdin:
            try:
                answer = to_json(
                    score_submission(_submission(line, defaults), server), indent=None
                )
            except Exception as error:  # the next lines are to be answered, too
                reason = error_message(error) or type(error).__name__
                answer = strict_json.dumps({"error": reason}, indent=None)
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()


def _submission(line: str, defaults: Submission) -> Submission:
    """Return the submission of a line; a field that it does not have is that of the command."""
    given: Any = json_text.loads(line)
    if not isinstance(given, dict) or not {"target", "seed"} <= given.keys():
        raise ValueError(f"a line must be a JSON object with target and seed, got {line.strip()}")
    if "operation" in given:
        given["operation"] = as_operation(given["operation"])
    if "dtypes" in given:
        given["dtypes"] = tuple(given["dtypes"])
    return replace(defaults, **given)
