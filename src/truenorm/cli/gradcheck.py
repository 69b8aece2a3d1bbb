"""``truenorm gradcheck``: check a backward pass of any kind."""

import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

import truenorm
from truenorm.cli import stop
from truenorm.cli.output import json_option
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.gradient_check.checker import MethodName
from truenorm.gradient_check.result import record_of
from truenorm.tools import strict_json
from truenorm.tools.text import printable
from truenorm.verify.runs.loading import executed, split_target

__all__ = ["command"]

Pair = tuple[Any, Any, Any]
PACKAGE = Path(truenorm.__file__).parent
EXAMPLE = "forward, backward, [input, ...]"


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A Python file, and after a colon the name of the pair in it ('pair' if no name "
            "is given). The file is executed.",
            show_default=False,
        ),
    ],
    method: Annotated[
        MethodName, typer.Option(help="How to find derivatives of forward; auto: the best.")
    ] = "auto",
    tol: Annotated[
        float | None,
        typer.Option(
            help="The relative error allowed; by default by method and type.", show_default=False
        ),
    ] = None,
    probes: Annotated[int, typer.Option(help="Random projections of a larger input.")] = 4,
    seed: Annotated[int, typer.Option(help="Of the random dy and projections.")] = 0,
    json: Annotated[bool, json_option("the result")] = False,
) -> None:
    """Check the gradients of any hand-written backward pass.

    They are compared with derivatives of the forward pass. What cannot be seen is not answered.

    Write my_pair.py:

    \b
        import numpy as np
        def forward(x, weight):
            return np.tanh(x @ weight)
        def backward(dy, x, weight):
            g = dy * (1 - forward(x, weight) ** 2)
            return g @ weight.T, x.T @ g
        pair = forward, backward, [np.ones((2, 3)), np.eye(3)]

    then run:

    \b
        truenorm gradcheck my_pair.py
        truenorm gradcheck my_pair.py:pair --method central --json

    Exit codes:

    \b
        0  PASS
        1  FAIL or INCONCLUSIVE
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    forward, backward, inputs = _pair(target)
    try:
        result: GradientCheck = gradcheck(
            forward, backward, inputs, method=method, tol=tol, probes=probes, seed=seed
        )
    except Exception as error:
        stop(_told(error))
    if json:
        typer.echo(strict_json.dumps(record_of(result)))
    else:
        for line in str(result).splitlines():
            typer.echo(printable(line))
    raise typer.Exit(0 if result else 1)


def _pair(target: str) -> Pair:
    """Return forward, backward and inputs of the file, or say what is missing."""
    path, name = split_target(target, default="pair")
    try:
        module = executed(path)
    except Exception as error:
        stop(_told(error))
    pairs: dict[str, Pair] = {key: value for key, value in vars(module).items() if _is_pair(value)}
    if name not in pairs:
        there = f"it has {', '.join(pairs)}" if pairs else f"write {name} = {EXAMPLE}"
        stop(f"{path.name} has no pair named {name!r}; {there}")
    return pairs[name]


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple) and len(value) == 3 and callable(value[0]) and callable(value[1])
    )


def _told(error: Exception) -> str:
    """Return a refusal of ours as it is, and an error of the file's with the lines it is in."""
    frames = traceback.extract_tb(error.__traceback__)
    if Path(frames[-1].filename).is_relative_to(PACKAGE):
        return str(error)
    theirs = [each for each in frames if not Path(each.filename).is_relative_to(PACKAGE)]
    lines = [*traceback.format_list(theirs), *traceback.format_exception_only(error)]
    return f"the file failed:\n{''.join(lines)}"
