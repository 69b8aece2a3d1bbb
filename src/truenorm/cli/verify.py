"""``truenorm verify``: judge a kernel, compare two kernels, or run a campaign of drawn cases."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import typer
from rich.console import Console

from truenorm.cli.common import (
    Dtype,
    JsonOption,
    LevelName,
    argument,
    check_positive,
    check_writable,
    file_writer,
    option,
    progress_bar,
    stop_on,
)
from truenorm.tools.command_line import stop
from truenorm.tools.progress import Progress
from truenorm.tools.text import counted
from truenorm.verify.baseline import update_baseline as write_baseline
from truenorm.verify.campaigns import Campaign, CampaignSettings, campaign_target
from truenorm.verify.equality import Equality
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import SubjectOptions, compare_targets, verify_target
from truenorm.verify.report import terminal
from truenorm.verify.report.json_report import to_json
from truenorm.verify.report.wording import baseline_counts
from truenorm.verify.running.process import START_SECONDS
from truenorm.verify.running.records import CannotRunError

GradeName = Literal["wrong", "unstable", "conditional", "stable", "faithful", "correct"]
AnyReport = TypeVar("AnyReport", Report, Equality, Campaign)
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

GithubOption = Annotated[
    Path | None,
    option(
        "FILE",
        "Also append a summary in Markdown to this file, such as $GITHUB_STEP_SUMMARY, and print "
        "an annotation of GitHub to stderr for each new finding.",
    ),
]


def verify_command(
    target: Annotated[
        str,
        argument(
            "TARGET",
            "FILE.py or FILE.py:NAME, where NAME is a Subject in that file (default: "
            "subject), or a function of x, weight, bias and eps, with --operation. The file is "
            "executed. Or torch:PATH, the import path of a PyTorch function or module, such as "
            "torch:torch.nn.functional.rms_norm, with --operation.",
        ),
    ],
    operation: Annotated[
        str | None,
        option(
            "NAME[,OPTION=...]",
            "The operation it computes: layer_norm, rms_norm, add_layer_norm or add_rms_norm. "
            "Options: gain=zero-centred, beta=true, parameters=TYPE, result=TYPE, sum=unrounded.",
            show_default="the subject's own, or layer_norm",
        ),
    ] = None,
    recipe: RecipeOption = "",
    largest: LargestOption = None,
    kappa: KappaOption = None,
    strict: StrictOption = False,
    shape: Annotated[
        list[str] | None,
        option(
            "ROWSxD",
            "Also judge random rows of this shape in every type, such as 4096x5120 or "
            "8x1024x4096. Can be repeated.",
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        option(
            "FILE",
            "Also judge tensors from an .npz or .safetensors file: x (or input, hidden_states) "
            "and optionally gamma (weight), beta (bias), dy (grad), residual, dsum and eps. "
            "Can be repeated.",
        ),
    ] = None,
    level: Annotated[
        LevelName, typer.Option(help="Number of cases: quick takes seconds, full minutes.")
    ] = "quick",
    require: RequireOption = "stable",
    dtype: Annotated[
        list[Dtype] | None,
        option(
            "TYPE",
            "Judge this type only, such as float32. Can be repeated. Default: all types that the "
            "subject declares; float32 and bfloat16 for functions of PyTorch.",
        ),
    ] = None,
    start_seconds: Annotated[
        float, typer.Option(help="Time limit for the file to be imported and compiled.")
    ] = START_SECONDS,
    baseline: BaselineOption = None,
    update_baseline: UpdateBaselineOption = False,
    equal_to: Annotated[
        str,
        option(
            "TARGET",
            "Compare bit for bit with this subject instead: where they differ, by how much, and "
            "which of the two is more accurate.",
        ),
    ] = "",
    cases: Annotated[
        int | None,
        option(
            "N",
            "Run a campaign instead: judge N new cases drawn at random from the families of "
            "inputs, and print a summary.",
            min=1,
        ),
    ] = None,
    seed: Annotated[
        int | None, option("S", "Random seed of --cases.", min=1, show_default="1")
    ] = None,
    jobs: Annotated[
        int | None,
        option(
            "N",
            "Number of processes, each with its own copy of the subject. The report does not "
            "depend on it.",
            min=1,
        ),
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    github: GithubOption = None,
) -> None:
    """Find bugs in a layer norm or RMSNorm, and grade its accuracy.

    Runs the forward and backward pass on inputs that broke real kernels, and compares the results
    with exact answers. Every finding comes with a few lines of Python that reproduce it.

    Write my_kernel_check.py:

    \b
        import truenorm.verify as tv
        from my_kernel import forward, backward
        subject = tv.Subject(forward=forward, backward=backward,
                             name="my kernel", dtypes=["float32"])

    where x has the shape (rows, D), and backward, which is optional, gets what forward saved:

    \b
        layer_norm      forward(x, gamma, beta, eps) -> y, saved
                        backward(dy, saved) -> dx, dgamma, dbeta
        rms_norm        forward(x, gamma, eps) -> y, saved
                        backward(dy, saved) -> dx, dgamma
        add_layer_norm  forward(x, residual, gamma, beta, eps) -> y, sum, saved
                        backward(dy, dsum, saved)
                            -> dx, dresidual, dgamma, dbeta
        add_rms_norm    forward(x, residual, gamma, eps) -> y, sum, saved
                        backward(dy, dsum, saved) -> dx, dresidual, dgamma

    Without backward, forward returns y alone, or y and sum. Then run:

    \b
        truenorm verify my_kernel_check.py:subject
        truenorm verify my_kernel_check.py --level full --html report.html
        truenorm verify my_kernels.py:rms_norm --operation rms_norm
        truenorm verify torch:torch.nn.functional.rms_norm --operation rms_norm
        truenorm verify my_kernel_check.py --strict
        truenorm verify my_kernel_check.py --shape 4096x5120 --data x.npz
        truenorm verify my_kernel_check.py --baseline known.json
        truenorm verify my_kernel_check.py --cases 1000 --seed 7 --jobs 8
        truenorm verify my_kernels.py:eager --equal-to my_kernels.py:compiled
        truenorm verify my_fused_check.py --recipe early \\
            --operation add_rms_norm,parameters=float32

    Exit codes:

    \b
        0  clean
        1  a finding, or a grade below --require, that is not in the baseline;
           with --equal-to, bits that differ; with --cases, a wrong result
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    check_positive("--start-seconds", start_seconds)
    if operation == "":
        stop("--operation must be a name such as rms_norm, got ''; leave it out for the default")
    overrides: SubjectOptions = {
        "operation": operation or "",
        "recipe": recipe,
        "largest": largest,
        "kappa": kappa,
        "shapes": shape or (),
        "data": data or (),
        "dtypes": dtype,
    }
    report_options = bool(baseline or update_baseline or html or github)
    if equal_to:
        if report_options or cases or seed or jobs or strict or require != "stable":
            stop(
                "--baseline, --update-baseline, --html, --github, --cases, --seed, --jobs, "
                "--strict and --require are for one subject, and not for two: judge each without "
                "--equal-to"
            )
        with stop_on(CannotRunError, ValueError), progress_bar("comparing") as progress:
            equality = compare_targets(
                target,
                equal_to,
                level=level,
                progress=progress,
                start_seconds=start_seconds,
                **overrides,
            )
        _finish(equality, terminal.show_equality, json=json)
    if cases is not None:
        if report_options or recipe or shape or data:
            stop(
                "--cases cannot be combined with --recipe, --shape, --data, --baseline, "
                "--update-baseline, --html or --github: use two runs"
            )
        with (
            stop_on(CannotRunError, ValueError),
            progress_bar("judging") as progress,
            process_pool(jobs) as executor,
        ):
            campaign = campaign_target(
                target,
                CampaignSettings(cases, seed or 1, level, require, strict),
                progress=progress,
                start_seconds=start_seconds,
                executor=executor,
                **overrides,
            )
        _finish(campaign, terminal.show_campaign, json=json)
    if seed is not None:
        stop("--seed requires --cases")

    def run(known: Path | None, progress: Progress | None) -> Report:
        with process_pool(jobs) as executor:
            return verify_target(
                target,
                level=level,
                require=require,
                strict=strict,
                progress=progress,
                baseline=known,
                start_seconds=start_seconds,
                executor=executor,
                **overrides,
            )

    files = ReportFiles(baseline, html, github, target)
    judge_and_finish(run, files, update_baseline=update_baseline, json=json)


class ReportFiles(NamedTuple):
    """The files that a report is compared with and written to.

    `target` is the subject, as on the command line, whose file is annotated on GitHub.
    """

    baseline: Path | None
    html: Path | None
    github: Path | None
    target: str


def judge_and_finish(
    run: Callable[[Path | None, Progress | None], Report],
    files: ReportFiles,
    *,
    update_baseline: bool,
    json: bool,
) -> None:
    """Check the options of a report, judge by `run`, print and write the report, and exit.

    `run` is called with the baseline to compare with, and with the progress to report.
    """
    baseline, html, github, target = files
    if update_baseline:
        check_writable("--baseline", baseline or stop("--update-baseline needs --baseline FILE"))
    known = None if update_baseline and baseline and not baseline.exists() else baseline
    packages = ("jinja2", "matplotlib")
    write_html = file_writer(
        "--html", html, "truenorm.verify.report.html", packages=packages, suffix=".html"
    )
    write_github = file_writer(
        "--github", github, "truenorm.verify.report.github", packages=(), target=target
    )
    if html is not None and baseline is not None and html.resolve() == baseline.resolve():
        stop(f"--html and --baseline must be two files, got {html} for both")
    with stop_on(CannotRunError, ValueError), progress_bar("judging") as progress:
        report = run(known, progress)
    if update_baseline and baseline:
        report = _with_new_baseline(report, baseline)
    _finish(report, terminal.show, write_html, write_github, json=json)


@contextmanager
def process_pool(jobs: int | None) -> Iterator[Executor | None]:
    """Provide an executor with `jobs` processes, or None if `jobs` is None."""
    if jobs is None:
        yield None
        return
    # Spawn instead of fork: this process has threads.
    spawn = get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, initializer=_end_with_parent) as executor:
        yield executor


def _end_with_parent() -> None:
    """End this process of a pool with the process that has the pool, however that one ends."""

    def watch() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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


def _finish(
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
