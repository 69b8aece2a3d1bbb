"""Options, reports and exit codes that the commands which judge a subject share."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeVar, Unpack

import typer
from rich.console import Console

from truenorm.cli.common import (
    Dtype,
    LevelName,
    argument,
    check_positive,
    check_writable,
    html_writer,
    option,
    progress_bar,
    stop_on,
)
from truenorm.tools.command_line import stop
from truenorm.tools.progress import Progress
from truenorm.tools.text import counted
from truenorm.tools.user_files import split_target
from truenorm.verify.baseline import update_baseline as write_baseline
from truenorm.verify.equality import Equality
from truenorm.verify.grading.report import Report
from truenorm.verify.operations import as_operation
from truenorm.verify.report import terminal
from truenorm.verify.report.json_report import to_json
from truenorm.verify.report.wording import baseline_counts
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.subject import SubjectOptions

GradeName = Literal["wrong", "unstable", "conditional", "stable", "faithful", "correct"]
AnyReport = TypeVar("AnyReport", Report, Equality)
TARGET = (
    "FILE.py or FILE.py:NAME, where NAME is a Subject in that file (default: subject), or a "
    "function of x, weight, bias and eps, with --operation. The file is executed. Or torch:PATH, "
    "the import path of a PyTorch function or module, such as "
    "torch:torch.nn.functional.rms_norm, with --operation."
)
OperationOfSubject = Annotated[
    str | None,
    option(
        "NAME[,OPTION=...]",
        "The operation it computes: layer_norm, rms_norm, add_layer_norm or add_rms_norm. "
        "Options: gain=zero-centred, beta=true, parameters=TYPE, result=TYPE, sum=unrounded.",
        show_default="the subject's own, or layer_norm",
    ),
]
FormulaOption = Annotated[
    str | None,
    option(
        "FILE.py:NAME",
        "The formula it computes, instead of --operation: a function, or a result of "
        "truenorm.verify.formula. The file is executed.",
    ),
]
ShapesOption = Annotated[
    list[str] | None,
    option(
        "ROWSxD",
        "Also judge random rows of this shape in every type, such as 4096x5120 or "
        "8x1024x4096. Can be repeated.",
    ),
]
DataOption = Annotated[
    list[Path] | None,
    option(
        "FILE",
        "Also judge tensors from an .npz or .safetensors file: x (or input, hidden_states) "
        "and optionally gamma (weight), beta (bias), dy (grad), residual, dsum and eps. "
        "Can be repeated.",
    ),
]
LevelOption = Annotated[
    LevelName, typer.Option(help="Number of cases: quick takes seconds, full minutes.")
]
TypesOption = Annotated[
    list[Dtype] | None,
    option(
        "TYPE",
        "Judge this type only, such as float32. Can be repeated. Default: all types that the "
        "subject declares; float32 and bfloat16 for functions of PyTorch.",
    ),
]
StartSecondsOption = Annotated[
    float, typer.Option(help="Time limit for the file to be imported and compiled.")
]
JobsOption = Annotated[
    int,
    option(
        "N",
        "Number of processes that compute exact answers. The report does not depend on it.",
        min=1,
        show_default="1",
    ),
]
TargetArgument = Annotated[str, argument("TARGET", TARGET)]
RecipeOption = Annotated[
    str,
    option(
        "NAME",
        "Where it must round to 16 bits, such as late or early. By default, its recipe is "
        "reported and none is required.",
    ),
]
LargestOption = Annotated[
    float | None,
    option(
        "NUMBER",
        "The largest |x| that it supports. Cases beyond are reported and do not count for "
        "the grade.",
        show_default="1e4, or all with --strict",
    ),
]
KappaOption = Annotated[
    float | None,
    option(
        "NUMBER",
        "The largest condition number rms(x)/sqrt(var + eps) that it supports, likewise.",
        show_default="10, or all with --strict",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Require the grade for all rows, and for sums over n rows without a factor log2(n).",
    ),
]
RequireOption = Annotated[GradeName, typer.Option(help="The lowest grade that passes.")]
TimeOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="Time limit of all its calls. Where they would take longer, the cases that show most "
        "are judged, and the report lists the others.",
    ),
]
BatchName = Literal["require", "warn"]
BatchOption = Annotated[
    BatchName,
    typer.Option(
        help="Whether the bits of a row may depend on the batch: 'warn' reports it and passes, "
        "for libraries that do not promise otherwise."
    ),
]
BaselineOption = Annotated[
    Path | None,
    option(
        "FILE",
        "A file of known findings. Known findings are listed and pass, new ones fail, "
        "vanished ones are reported.",
    ),
]
UpdateBaselineOption = Annotated[
    bool,
    typer.Option(
        "--update-baseline",
        help="Write the current findings to the baseline; its reasons are preserved.",
    ),
]
HtmlOption = Annotated[
    Path | None, option("FILE", "Also write the report, with plots, to one HTML file.")
]


def subject_options(
    start_seconds: float, formula: str | None = None, **options: Unpack[SubjectOptions]
) -> SubjectOptions:
    """Check the options of every command with a subject, and return those that change it."""
    check_positive("--start-seconds", start_seconds)
    if formula is not None:
        if options.get("operation") is not None:
            stop("give --formula or --operation, not both")
        file, name = split_target(formula, "formula")
        if file.suffix != ".py":
            stop(f"--formula must be FILE.py:NAME, got {formula!r}")
        options["operation"] = f"{file.resolve()}:{name}"
    operation = options.get("operation")
    if operation == "":
        stop("--operation must be a name such as rms_norm, got ''; leave it out for the default")
    if operation and not operation.startswith(","):  # else it changes that of the subject
        with stop_on(ValueError):
            as_operation(operation)
    return options


class ReportFiles:
    """The files that a report is compared with and written to; their options are checked first.

    `known` is the baseline to compare with: none if it is to be written for the first time.
    """

    def __init__(
        self,
        baseline: Path | None,
        html: Path | None,
        *,
        update_baseline: bool,
    ) -> None:
        if update_baseline:
            written = baseline or stop("--update-baseline needs --baseline FILE")
            check_writable("--baseline", written)
        self._new_baseline = baseline if update_baseline else None
        self.known = None if update_baseline and baseline and not baseline.exists() else baseline
        self._write_html = html_writer(html)
        if html is not None and baseline is not None and html.resolve() == baseline.resolve():
            stop(f"--html and --baseline must be two files, got {html} for both")

    def finish(self, report: Report, *, json: bool) -> None:
        """Print and write the report, and exit."""
        if self._new_baseline:
            report = _with_new_baseline(report, self._new_baseline)
        finish(report, terminal.show, self._write_html, json=json)


@contextmanager
def judging(title: str = "judging") -> Iterator[Progress]:
    """Show progress while the block runs, and stop with the message of its errors."""
    with stop_on(CannotRunError, ValueError), progress_bar(title) as progress:
        yield progress


def _with_new_baseline(report: Report, baseline: Path) -> Report:
    """Write the findings to the baseline, and return the report compared with it."""
    counts = counted(len(report.findings), "finding")
    if report.baseline:
        counts = f"{baseline_counts(report)} before"
    with stop_on(ValueError):
        try:
            report = write_baseline(report, baseline)
        except OSError as error:
            stop(f"cannot write {baseline}: {error.strerror}; give --baseline another file")
    sys.stderr.write(f"wrote {baseline}: {counts}\n")
    return report


def finish(
    report: AnyReport,
    show: Callable[[AnyReport, Console], None],
    *writers: Callable[[AnyReport], None],
    json: bool,
) -> None:
    """Print the report, write its files, and exit with 0 if it passes, else 1."""
    if json:
        typer.echo(to_json(report))
    else:
        show(report, Console(highlight=False))
    for write in writers:
        write(report)
    raise typer.Exit(0 if report.passed else 1)
