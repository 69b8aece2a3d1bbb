"""The commands vectors, gradcheck, bench, cost, demo and doctor.

Each imports its part of the package when it runs: all of them together take seconds to import.
"""

import math
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

import truenorm
from truenorm.cli import stop
from truenorm.cli.common import (
    Dtype,
    DtypeOption,
    JsonOption,
    LevelName,
    Norm,
    NormOption,
    PngOption,
    argument,
    file_writer,
    option,
    print_report,
    progress_bar,
    stop_on,
)
from truenorm.cost import Form, Keep
from truenorm.gradient_check.checker import MethodName
from truenorm.tools import strict_json
from truenorm.tools.text import printable

if TYPE_CHECKING:
    from truenorm.cost import Machine

Pair = tuple[Any, Any, Any]
"""A forward pass, its backward pass, and the inputs to check them at."""
PACKAGE = Path(truenorm.__file__).parent
BENCH_ROUNDS = 15
DemoDtype = Literal["float32", "float64"]
DemoOutput = Literal["y", "dx", "dgamma", "variance"]


def vectors_command(
    folder: Annotated[Path, argument("DIR", "An empty folder, or one to create.")],
    operation: Annotated[
        str,
        typer.Option(
            metavar="NAME[,OPTION=...]",
            help="The operation: layer_norm, rms_norm, or any other that 'truenorm verify --help' "
            "lists.",
        ),
    ] = "layer_norm",
    level: Annotated[LevelName, typer.Option(help="Number of cases.")] = "quick",
    dtype: Annotated[
        list[Dtype] | None,
        typer.Option(
            metavar="TYPE",
            help=f"One of {', '.join(Dtype)}. Can be repeated.",
            show_default="float32",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write hard inputs and their exact answers to files.

    They are test data for kernels in C, Rust, CUDA or any other language.

    Each case is a few raw little-endian arrays: inputs, correctly rounded results and the allowed
    error. A plain-text manifest lists them. An .npz file has the same data for Python.

    \b
        truenorm vectors my_vectors
        truenorm vectors my_vectors --operation rms_norm
        truenorm vectors my_vectors --dtype float16 --dtype float32 --level full

    Exit codes:

    \b
        0  written
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    from truenorm.verify import suite
    from truenorm.verify.operations import parse_operation
    from truenorm.verify.report.vectors import write_vectors

    with stop_on(ValueError, OSError), progress_bar("writing") as progress:
        cases = [
            case
            for name in dtype or [Dtype.float32]
            for case in suite.cases(name, level, operation=parse_operation(operation))
        ]
        summary = write_vectors(folder, cases, progress)
    if json:
        typer.echo(strict_json.dumps(summary))
    else:
        typer.echo("\n".join(f"{key}: {value}" for key, value in summary.items()))


def gradcheck_command(
    target: Annotated[
        str,
        argument(
            "TARGET",
            "FILE.py or FILE.py:NAME, where NAME is a tuple (forward, backward, inputs) in "
            "that file (default: pair). The file is executed.",
        ),
    ],
    method: Annotated[
        MethodName, typer.Option(help="How to differentiate forward; auto takes the best.")
    ] = "auto",
    tol: Annotated[
        float | None,
        typer.Option(
            help="The allowed relative error.", show_default="depends on method and type"
        ),
    ] = None,
    probes: Annotated[
        int, typer.Option(help="Number of random projections of a large input.")
    ] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the random dy and projections.")] = 0,
    json: JsonOption = False,
) -> None:
    """Check the gradients of any hand-written backward pass.

    Compares them with derivatives of the forward pass. The verdict is INCONCLUSIVE where these
    derivatives are not accurate enough.

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
    from truenorm.gradient_check import gradcheck
    from truenorm.gradient_check.result import record_of

    forward, backward, inputs = _load_pair(target)
    try:
        result = gradcheck(
            forward, backward, inputs, method=method, tol=tol, probes=probes, seed=seed
        )
    except Exception as error:
        stop(_message_of(error))
    if json:
        typer.echo(strict_json.dumps(record_of(result)))
    else:
        for line in str(result).splitlines():
            typer.echo(printable(line))
    raise typer.Exit(0 if result else 1)


def _load_pair(target: str) -> Pair:
    """Execute the file of a target and return its pair; stop if there is none."""
    from truenorm.verify.running.loading import run_file, split_target

    path, name = split_target(target, default="pair")
    try:
        module = run_file(path)
    except Exception as error:
        stop(_message_of(error))
    pairs: dict[str, Pair] = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, tuple) and len(value) == 3 and all(map(callable, value[:2]))
    }
    if name not in pairs:
        example = f"write {name} = forward, backward, [input, ...]"
        hint = f"it has {', '.join(pairs)}" if pairs else example
        stop(f"{path.name} has no pair named {name!r}; {hint}")
    return pairs[name]


def _message_of(error: Exception) -> str:
    """Return the message of an error raised here, or the user's part of a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    if Path(frames[-1].filename).is_relative_to(PACKAGE):
        return str(error)
    user_frames = [each for each in frames if not Path(each.filename).is_relative_to(PACKAGE)]
    lines = [*traceback.format_list(user_frames), *traceback.format_exception_only(error)]
    return f"the file failed:\n{''.join(lines)}"


def bench_command(
    shapes: Annotated[
        list[str] | None,
        argument(
            "SHAPES",
            "Such as 2x128x1024; the last number is D. Default: eight shapes, from one row "
            "of 64 to 2048 rows of 4096.",
        ),
    ] = None,
    operation: NormOption = Norm.layer_norm,
    dtype: DtypeOption = Dtype.float32,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of threads.", show_default="number of cores"),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often each implementation is timed.")
    ] = BENCH_ROUNDS,
    json: JsonOption = False,
    png: PngOption = None,
) -> None:
    """Time layer norm or RMSNorm on this machine.

    Compares forward and backward of truenorm in its two modes (correct and fast) with the
    textbook formula in NumPy, with the same in float64, and with a copy of the array as a lower
    bound. The implementations take turns; the figures are medians.

    The default takes about a minute. The extra time of first calls is printed, and is not part of
    any other figure.

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
    from truenorm.bench import DEFAULT_SHAPES, measure, shape_of, show_timings

    write_png = file_writer("--png", png, "truenorm.bench")
    try:
        with stop_on(ValueError), progress_bar("measuring") as progress:
            report = measure(
                [shape_of(text) for text in shapes] if shapes else DEFAULT_SHAPES,
                operation=operation,
                dtype=dtype,
                threads=threads,
                rounds=rounds,
                progress=progress,
            )
    except MemoryError:
        stop("not enough memory for this shape: give a smaller one")
    print_report(report.as_dict(), json=json, show=lambda console: show_timings(report, console))
    write_png(report)


def cost_command(
    shape: Annotated[
        list[int], argument("SHAPE", "The shape of x, normalized axis last: 8 1024 4096.")
    ],
    dtype: DtypeOption = Dtype.float32,
    operation: NormOption = Norm.layer_norm,
    steps: Annotated[Form, typer.Option(help="Which form to show step by step.")] = "textbook",
    keep: Annotated[
        Keep | None,
        typer.Option(
            help="Which array forward saves for backward.",
            show_default="xhat in the textbook form, else x",
        ),
    ] = None,
    bandwidth: Annotated[
        float | None, option("GB/S", "Predict times for this memory bandwidth.")
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(
            metavar="GFLOP/S",
            help="Rate of arithmetic, for --bandwidth.",
            show_default="arithmetic takes no time",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Predict times for this machine: measures a copy and a matrix product.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Count the FLOPs, bytes and memory of layer norm or RMSNorm.

    Compares three forms: the textbook's, where each NumPy operation goes through memory; the same
    in blocks that stay in a cache; one fused kernel a pass. Runs nothing, except with --measure.
    (D1) to (D29) are equations of the page "Derivation".

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
    from truenorm.cost import as_data, layer_norm_cost, rms_norm_cost, show_cost

    default_keep: dict[Form, Keep] = {"textbook": "xhat", "blocked": "x", "fused": "x"}
    is_layer_norm = operation is Norm.layer_norm
    title = "layer norm" if is_layer_norm else "RMSNorm"
    cost_of = layer_norm_cost if is_layer_norm else rms_norm_cost
    with stop_on(ValueError):
        costs = [
            cost_of(shape, dtype, form, keep or default_keep[form]) for form in get_args(Form)
        ]
    machine = _machine(bandwidth, flops, measure, dtype)
    print_report(
        {"operation": operation, **as_data(costs, machine)},
        json=json,
        show=lambda console: show_cost(title, costs, steps, machine, console),
    )


def _machine(bandwidth: float | None, flops: float | None, measure: bool, dtype: str) -> "Machine":
    """Return the rates of the options, or measure them."""
    from truenorm.cost import Machine, measure_bandwidth, measure_flops_rate
    from truenorm.threads import thread_count

    for name, value in (("--bandwidth", bandwidth), ("--flops", flops)):
        if value is not None and not 0 < value < math.inf:
            stop(f"{name} must be a positive number, got {value:g}")
        if value is not None and measure:
            stop(f"{name} and --measure exclude each other: give one of them")
    if flops is not None and bandwidth is None:
        stop("--flops alone predicts no time: give --bandwidth as well")
    if measure:
        threads = thread_count(None)
        source = f"measured now: a copy on {threads} threads, a matrix product"
        return Machine(measure_bandwidth(threads), measure_flops_rate(dtype), source)
    if bandwidth is None:
        return Machine(None, math.inf, "")
    return Machine(bandwidth * 1e9, math.inf if flops is None else flops * 1e9, "as given")


def demo_command(
    dtype: Annotated[
        DemoDtype | None,
        typer.Option(help="One type only.", show_default="both, and named rows of float16"),
    ] = None,
    output: Annotated[
        DemoOutput, typer.Option(help="The output whose correct digits are shown.")
    ] = "y",
    size: Annotated[
        int, typer.Option(metavar="D", min=2, help="Elements of a row; the time grows with it.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise in the rows.")] = 0,
    json: JsonOption = False,
    png: PngOption = None,
) -> None:
    """Show where layer normalization loses its digits.

    Runs one-pass, Welford, two-pass, corrected two-pass, a mean stored as two numbers, the
    textbook formula in float64 and truenorm on rows whose mean is much larger than their standard
    deviation, and compares them with exact results. Then shows each instability, with a row that
    triggers it. Takes a few seconds.

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
    from truenorm.demo import DTYPES, demonstrate, show_demonstration

    write_png = file_writer("--png", png, "truenorm.demo", suffix=".png")
    with progress_bar("measuring") as progress:
        dtypes = DTYPES if dtype is None else (dtype,)
        report = demonstrate(dtypes, size=size, seed=seed, progress=progress)
    print_report(
        report, json=json, show=lambda console: show_demonstration(report, console, output)
    )
    write_png(report)


def doctor_command(
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also check the gradients and judge truenorm itself: about a minute."
        ),
    ] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Examine GPUs instead: bits, then speed.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Examine and test this installation, and report problems.

    Shows versions, backends, threads and the processor, and compares a few results of each type
    and backend with exact answers. Takes seconds.

    With --gpu, compares thousands of results of each type with those of NumPy, bit for bit, and
    times both passes relative to a copy on the device: about a minute. A time of 1.00 is that of a
    copy which moves the same bytes, without those of dgamma and dbeta.

    In a pipe the output is plain text that can be pasted into an issue.

    \b
        truenorm doctor
        truenorm doctor --full > my_report.txt
        truenorm doctor --gpu > my_card.txt

    Exit codes:

    \b
        0  healthy
        1  there are problems; the lines with -> say what to do
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    from truenorm.doctor import examine, show_diagnosis, to_text

    with progress_bar("testing") as progress:
        diagnosis = examine(full=full, gpu=gpu, progress=progress)
    if sys.stdout.isatty() or json:
        print_report(
            diagnosis.as_dict(), json=json, show=lambda console: show_diagnosis(diagnosis, console)
        )
    else:
        typer.echo(to_text(diagnosis))
    raise typer.Exit(0 if diagnosis.healthy else 1)
