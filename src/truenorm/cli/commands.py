"""The commands vectors, gradcheck, bench, cost, demo and doctor.

Each imports its part of the package when it runs: all of them together take seconds to import.
"""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer
from rich.console import Console

from truenorm.cli.common import (
    Dtype,
    DtypeOption,
    JsonOption,
    LevelName,
    Norm,
    NormOption,
    OperationOption,
    PngOption,
    argument,
    check_positive,
    file_writer,
    option,
    print_report,
    progress_bar,
    stop_on,
)
from truenorm.cost import Form, Keep
from truenorm.gradient_check.checker import MethodName
from truenorm.tools import strict_json
from truenorm.tools.command_line import stop
from truenorm.tools.command_texts import DOCTOR, GRADCHECK
from truenorm.tools.text import parse_shape, printable

if TYPE_CHECKING:
    from truenorm.cost import Machine

BENCH_ROUNDS = 15
DemoDtype = Literal["float32", "float64"]
DemoOutput = Literal["y", "dx", "dgamma", "variance"]


def vectors_command(
    folder: Annotated[Path, argument("DIR", "An empty folder, or one to create.")],
    operation: OperationOption = "layer_norm",
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
    from truenorm.verify.operations.quantized.norm import refuse_quantized
    from truenorm.verify.operations.relatives.norm import refuse_axes
    from truenorm.verify.report.vectors import write_vectors

    with stop_on(ValueError), progress_bar("writing") as progress:
        norm = parse_operation(operation)
        refuse_quantized(norm, "truenorm vectors")
        refuse_axes(norm, "a folder of vectors")
        cases = [
            case
            for name in dtype or [Dtype.float32]
            for case in suite.cases(name, level, operation=norm)
        ]
        try:
            summary = write_vectors(folder, cases, progress)
        except OSError as error:
            stop(f"cannot write {folder}: {error.strerror or error}; name another folder")
    if json:
        typer.echo(strict_json.dumps(summary))
    else:
        typer.echo("\n".join(f"{key}: {value}" for key, value in summary.items()))


def gradcheck_command(
    target: Annotated[str, argument("TARGET", GRADCHECK.options["target"])],
    method: Annotated[MethodName, typer.Option(help=GRADCHECK.options["method"])] = "auto",
    tol: Annotated[float | None, option("NUMBER", GRADCHECK.options["tol"])] = None,
    probes: Annotated[int, typer.Option(help=GRADCHECK.options["probes"])] = 4,
    seed: Annotated[int, typer.Option(help=GRADCHECK.options["seed"])] = 0,
    json: JsonOption = False,
) -> None:
    """Check a pair of functions in a file; `GRADCHECK` has the text of the help."""
    from truenorm.gradient_check.pairs import CannotCheckError, check_target
    from truenorm.gradient_check.result import record_of

    with stop_on(CannotCheckError):
        result = check_target(target, method=method, tol=tol, probes=probes, seed=seed)
    if json:
        typer.echo(strict_json.dumps(record_of(result)))
    else:
        for line in str(result).splitlines():
            typer.echo(printable(line))
    raise typer.Exit(0 if result else 1)


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
    from truenorm.bench import DEFAULT_SHAPES, measure, show_timings

    write_png = file_writer("--png", png, "truenorm.bench", suffix=".png")
    with stop_on(ValueError), progress_bar("measuring") as progress:
        report = measure(
            [parse_shape(text) for text in shapes] if shapes else DEFAULT_SHAPES,
            operation=operation,
            dtype=dtype,
            threads=threads,
            rounds=rounds,
            progress=progress,
        )
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
        if value is not None:
            check_positive(name, value)
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
        int,
        # Longer rows take hours, and for very long ones NumPy's message would not name the option.
        typer.Option(
            metavar="D", min=2, max=2**20, help="Elements of a row; the time grows with it."
        ),
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
    with stop_on(ValueError), progress_bar("measuring") as progress:
        dtypes = DTYPES if dtype is None else (dtype,)
        report = demonstrate(dtypes, size=size, seed=seed, progress=progress)
    print_report(
        report, json=json, show=lambda console: show_demonstration(report, console, output)
    )
    write_png(report)


def doctor_command(
    full: Annotated[bool, typer.Option("--full", help=DOCTOR.options["full"])] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help=DOCTOR.options["gpu"])] = False,
    json: JsonOption = False,
) -> None:
    """Examine this installation; `DOCTOR` has the text of the help."""
    from truenorm.doctor import examine, report_text, show_diagnosis

    with progress_bar("testing") as progress:
        diagnosis = examine(full=full, gpu=gpu, progress=progress)
    if sys.stdout.isatty() and not json:
        show_diagnosis(diagnosis, Console(highlight=False))
    else:
        typer.echo(report_text(diagnosis, json=json))
    raise typer.Exit(0 if diagnosis.healthy else 1)
