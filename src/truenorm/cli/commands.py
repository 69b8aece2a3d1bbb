"""``truenorm bench``: time the operation on this machine."""

import math
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

import truenorm
from truenorm.bench import DEFAULT_ROUNDS, DEFAULT_SHAPES, measure, shape_of, show_timings
from truenorm.cli import stop
from truenorm.cli.output import (
    Dtype,
    Operation,
    file_option,
    json_option,
    present,
    progress_bar,
    refusing,
    writer_of,
)
from truenorm.cli.verify import LevelName
from truenorm.cost import (
    Form,
    Keep,
    layer_norm_cost,
    measure_bandwidth,
    measure_flops_rate,
    rms_norm_cost,
)
from truenorm.cost.page import Machine, as_data, show_cost
from truenorm.demo.demonstration import DTYPES, SweptType, demonstrate
from truenorm.demo.page import show_demonstration
from truenorm.doctor import examine, show_diagnosis, to_text
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.gradient_check.checker import MethodName
from truenorm.gradient_check.result import record_of
from truenorm.threads import thread_count
from truenorm.tools import strict_json
from truenorm.tools.text import printable
from truenorm.verify import suite
from truenorm.verify.operations import operation_of
from truenorm.verify.report.vectors import write_vectors
from truenorm.verify.running.loading import executed, split_target


def bench_command(
    shapes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SHAPES",
            help="Such as 2x128x1024; the last number is D. By default eight shapes, from one row "
            "of 64 to 2048 rows of 4096.",
            show_default=False,
        ),
    ] = None,
    operation: Annotated[Operation, typer.Option(help="Which norm.")] = Operation.layer_norm,
    dtype: Annotated[Dtype, typer.Option(help="The type of the data.")] = Dtype.float32,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="The most threads truenorm may use.", show_default="as many as cores"
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often each contestant is timed.")
    ] = DEFAULT_ROUNDS,
    json: Annotated[bool, json_option("the figures")] = False,
    png: Annotated[Path | None, file_option("Also draw the times.")] = None,
) -> None:
    """Time layer norm or RMSNorm on this machine, forward and backward.

    Contestants are truenorm in its two modes (correct and fast), the textbook formula in NumPy,
    the same in float64 with the result cast, and a copy of the array, which cannot be beaten by
    much. They take turns, and what is shown are medians.

    By default it takes about a minute. How much longer first calls took is printed, and is in no
    other figure.

    \b
        truenorm bench
        truenorm bench 8x1024x4096 --threads 1
        truenorm bench --operation rms_norm
        truenorm bench --dtype float16 --png my_machine.png

    Exit codes:

    \b
        0  measured
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    write = writer_of("--png", png, "truenorm.bench")
    try:
        with refusing(ValueError), progress_bar("measuring") as progress:
            chosen = [shape_of(text) for text in shapes] if shapes else DEFAULT_SHAPES
            report = measure(
                chosen,
                operation=operation,
                dtype=dtype,
                threads=threads,
                rounds=rounds,
                progress=progress,
            )
    except MemoryError:
        stop("there is not enough memory for this shape: give a smaller one")
    present(report.as_dict(), json=json, show=lambda console: show_timings(report, console))
    write(report)


NATURAL: dict[Form, Keep] = {"textbook": "xhat", "blocked": "x", "fused": "x"}
"""What each form keeps if it is not asked: truenorm.textbook has xhat."""
COUNTED = {"layer_norm": ("layer norm", layer_norm_cost), "rms_norm": ("RMSNorm", rms_norm_cost)}
"""Each operation in words, and who counts it."""


def cost_command(
    shape: Annotated[
        list[int],
        typer.Argument(
            metavar="SHAPE",
            help="The shape of x, the normalized axis last: 8 1024 4096.",
            show_default=False,
        ),
    ],
    dtype: Annotated[
        Dtype,
        typer.Option(metavar="TYPE", help="float16, bfloat16, float32 or float64."),
    ] = Dtype.float32,
    operation: Annotated[Operation, typer.Option(help="Which norm.")] = Operation.layer_norm,
    steps: Annotated[Form, typer.Option(help="Which form to show step by step.")] = "textbook",
    keep: Annotated[
        Keep | None,
        typer.Option(
            help="What forward keeps for backward.", show_default="xhat in the textbook, else x"
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            metavar="GB/S", help="Predict times for a memory of this speed.", show_default=False
        ),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(
            metavar="GFLOP/S",
            help="Beside --bandwidth: how fast the machine computes.",
            show_default="arithmetic takes no time",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Predict times for this machine: a copy, a matrix product."
        ),
    ] = False,
    json: Annotated[bool, json_option("all numbers")] = False,
) -> None:
    """Count what layer norm or RMSNorm costs: FLOPs, bytes, memory.

    Three forms are compared: the textbook's, where each NumPy operation goes through memory; the
    same in blocks that stay in a cache; one fused kernel a pass. Nothing is run, except with
    --measure. The numbers (D1) to (D29) are equations of the page "Derivation".

    \b
        truenorm cost 8 1024 4096
        truenorm cost 8 1024 4096 --operation rms_norm
        truenorm cost 8 1024 4096 --dtype bfloat16 --measure
        truenorm cost 8 1024 4096 --steps fused --bandwidth 3350 --flops 67000

    Exit codes:

    \b
        0  counted
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    title, counted = COUNTED[operation]
    with refusing(ValueError):
        costs = [counted(shape, dtype, form, keep or NATURAL[form]) for form in get_args(Form)]
    machine = _machine(bandwidth, flops, measure, dtype)
    present(
        {"operation": operation, **as_data(costs, machine)},
        json=json,
        show=lambda console: show_cost(title, costs, steps, machine, console),
    )


def _machine(bandwidth: float | None, flops: float | None, measure: bool, dtype: str) -> Machine:
    """Return what was given or what is measured now."""
    for name, value in (("--bandwidth", bandwidth), ("--flops", flops)):
        if value is not None and not 0 < value < math.inf:
            stop(f"{name} is {value:g}: give a number above zero")
        if value is not None and measure:
            stop(f"{name} and --measure contradict each other: give one of them")
    if flops is not None and bandwidth is None:
        stop("--flops alone predicts no time: give --bandwidth as well")
    if measure:
        threads = thread_count(None)
        source = f"measured now: a copy on {threads} threads, a matrix product"
        return Machine(measure_bandwidth(threads), measure_flops_rate(dtype), source)
    if bandwidth is None:
        return Machine(None, math.inf, "")
    return Machine(bandwidth * 1e9, math.inf if flops is None else flops * 1e9, "as given")


OutputName = Literal["y", "dx", "dgamma", "variance"]


def demo_command(
    dtype: Annotated[
        SweptType | None,
        typer.Option(help="One type alone.", show_default="both, and named rows of float16"),
    ] = None,
    output: Annotated[
        OutputName, typer.Option(help="The result whose digits are counted against the offset.")
    ] = "y",
    size: Annotated[
        int, typer.Option(metavar="D", min=2, help="Elements of a row; the time grows with it.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise in the rows.")] = 0,
    json: Annotated[bool, json_option("all errors")] = False,
    png: Annotated[Path | None, file_option("Also draw all errors.")] = None,
) -> None:
    """Show where layer normalization loses its digits.

    One-pass, Welford, two-pass, corrected two-pass, a mean kept as two numbers, the textbook
    formula in float64 and truenorm are run on rows whose mean outgrows their spread, and compared
    with exact integers. Then each instability, with a row that triggers it. It takes some seconds.

    \b
        truenorm demo
        truenorm demo --dtype float32 --output dx
        truenorm demo --png my_errors.png
        truenorm demo --json > my_errors.json

    Exit codes:

    \b
        0  shown
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    write = writer_of("--png", png, "truenorm.demo.page", ".png")
    with progress_bar("measuring") as progress:
        dtypes = DTYPES if dtype is None else (dtype,)
        report = demonstrate(dtypes, size=size, seed=seed, progress=progress)
    present(report, json=json, show=lambda console: show_demonstration(report, console, output))
    write(report)


def doctor_command(
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also check the gradients and judge truenorm itself: about a minute."
        ),
    ] = False,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Examine graphics processors instead: bits, then speed."),
    ] = False,
    json: Annotated[bool, json_option("what was found")] = False,
) -> None:
    """Look at this installation, test it, and say what is wrong.

    It shows versions, backends, threads and the processor, and compares a few results of each
    type and backend with exact answers. That takes seconds.

    With --gpu it looks for a graphics processor, compares thousands of results of each type with
    those of NumPy, to the bit, and times both passes beside a copy on the device: about a minute.
    A time of 1.00 is that of a copy which moves the same bytes, without those of dgamma and dbeta.

    In a pipe the output is plain text, ready to be pasted into an issue.

    \b
        truenorm doctor
        truenorm doctor --full > my_report.txt
        truenorm doctor --gpu > my_card.txt

    Exit codes:

    \b
        0  healthy
        1  something is wrong; the lines with -> say what to do
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    with progress_bar("testing") as progress:
        diagnosis = examine(full=full, gpu=gpu, progress=progress)
    if sys.stdout.isatty() or json:
        present(
            diagnosis.as_dict(), json=json, show=lambda console: show_diagnosis(diagnosis, console)
        )
    else:
        typer.echo(to_text(diagnosis))
    raise typer.Exit(0 if diagnosis.healthy else 1)


Pair = tuple[Any, Any, Any]
PACKAGE = Path(truenorm.__file__).parent
EXAMPLE = "forward, backward, [input, ...]"


def gradcheck_command(
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


def vectors_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A folder that is empty or not there yet.", show_default=False
        ),
    ],
    operation: Annotated[
        str,
        typer.Option(
            metavar="NAME[,OPTION=...]",
            help="Whose inputs and answers: layer_norm, rms_norm, or another that "
            "'truenorm verify --help' names.",
        ),
    ] = "layer_norm",
    level: Annotated[LevelName, typer.Option(help="How many cases.")] = "quick",
    dtype: Annotated[
        list[Dtype] | None,
        typer.Option(
            metavar="TYPE",
            help="float16, bfloat16, float32 or float64; may be given again for others.",
            show_default="float32",
        ),
    ] = None,
    json: Annotated[bool, json_option("what was written")] = False,
) -> None:
    """Write hard inputs and their exact answers as files.

    They are for the tests of kernels in C, Rust, CUDA or anything else that reads files.

    Each case is a few raw little-endian arrays: inputs, correctly rounded results, and the error
    that is allowed. A plain manifest lists them. For Python there is an .npz file beside them.

    \b
        truenorm vectors my_vectors
        truenorm vectors my_vectors --operation rms_norm
        truenorm vectors my_vectors --dtype float16 --dtype float32 --level full

    Exit codes:

    \b
        0  written
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    with refusing(ValueError, OSError), progress_bar("writing") as progress:
        cases = [
            case
            for name in dtype or [Dtype.float32]
            for case in suite.cases(name, level, operation=operation_of(operation))
        ]
        summary = write_vectors(folder, cases, progress)
    if json:
        typer.echo(strict_json.dumps(summary))
    else:
        typer.echo("\n".join(f"{key}: {value}" for key, value in summary.items()))
