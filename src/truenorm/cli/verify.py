"""The options of ``truenorm verify``, each with its help."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from rich.console import Console

from truenorm.cli import stop
from truenorm.cli.output import (
    Dtype,
    check_place,
    file_option,
    json_option,
    progress_bar,
    refusing,
    writer_of,
)
from truenorm.tools.text import counted
from truenorm.verify.baseline import update_baseline
from truenorm.verify.campaigns import Campaign, Drawing
from truenorm.verify.equality import Equality
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import Said, campaign_target, compare_targets, verify_target
from truenorm.verify.report import terminal
from truenorm.verify.report import terminal as campaign_page
from truenorm.verify.report import terminal as equality_page
from truenorm.verify.report.html import to_json
from truenorm.verify.report.wording import counts
from truenorm.verify.running.process import START_SECONDS, CannotRunError

LevelName = Literal["quick", "full"]
GradeName = Literal["wrong", "unstable", "conditional", "stable", "faithful", "correct"]

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A Python file, and after a colon the name of the Subject in it "
        "('subject' if no name is given). The file is executed. Or torch:PATH, a function or "
        "a module of PyTorch as it is imported, such as torch:torch.nn.functional.rms_norm; "
        "--operation says what it computes.",
        show_default=False,
    ),
]
OperationWords = Annotated[
    str,
    typer.Option(
        metavar="NAME[,OPTION=...]",
        help="What it computes: layer_norm, rms_norm, add_layer_norm or add_rms_norm; then, "
        "with commas before them, what is not the usual: gain=zero-centred, beta=true, "
        "parameters=TYPE, result=TYPE, sum=unrounded.",
        show_default="what the subject says, which is layer_norm unless it says otherwise",
    ),
]
RecipeName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where it must round on the way to 16 bits, such as late or early. "
        "By default, whatever recipe it has is told.",
        show_default=False,
    ),
]
Largest = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="The largest |x| that it claims to be right for, such as 1e4: "
        "what is beyond is left out of the grade.",
        show_default=False,
    ),
]
Kappa = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="The same of the condition number rms(x)/sqrt(var + eps).",
        show_default=False,
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ROWSxD",
        help="Judge it on ordinary rows of this shape as well, such as 4096x5120 or "
        "8x1024x4096, in every type; may be given again for others.",
        show_default=False,
    ),
]
Data = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="And on saved tensors: a .npz or .safetensors file with x (or input, "
        "hidden_states), and if you like gamma (weight), beta (bias), dy (grad), residual, "
        "dsum and eps. May be given again.",
        show_default=False,
    ),
]
Level = Annotated[LevelName, typer.Option(help="How much to try: some seconds, or some minutes.")]
Require = Annotated[GradeName, typer.Option(help="The lowest grade that passes.")]
Dtypes = Annotated[
    list[Dtype] | None,
    typer.Option(
        metavar="TYPE",
        help="Judge this type alone, such as float32; may be given again for others. "
        "By default, all that the subject declares; of torch:PATH, float32 and bfloat16.",
        show_default=False,
    ),
]
StartSeconds = Annotated[
    float, typer.Option(help="How long the file may take to import, or to compile.")
]
Baseline = Annotated[
    Path | None,
    file_option(
        "A file of known findings, which pass and are listed; new ones fail, and vanished "
        "ones are told."
    ),
]
UpdateBaseline = Annotated[
    bool,
    typer.Option(
        "--update-baseline",
        help="Write what is found now to that file; reasons in it are kept.",
    ),
]
EqualTo = Annotated[
    str,
    typer.Option(
        metavar="TARGET",
        help="Compare the bits with those of this subject instead: where they differ, by how "
        "much, and which of the two is nearer to the exact answer.",
        show_default=False,
    ),
]
Json = Annotated[bool, json_option("the report")]
Html = Annotated[Path | None, file_option("Also write the report, with plots, to one HTML file.")]
Cases = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Instead of a report, judge it on so many new cases, drawn from the families, and "
        "print a summary.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="S",
        min=1,
        help="What --cases draws them with; the same ones for the same seed.",
        show_default="1",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Judge by so many processes, each with a subject of its own; the report is the same.",
        show_default=False,
    ),
]


@contextmanager
def workers(jobs: int | None) -> Iterator[Executor | None]:
    """Give an executor with so many processes; None where none are asked for."""
    if jobs is None:
        yield None
        return
    # Spawned, and not forked: this process has threads.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as executor:
        yield executor


Shown = TypeVar("Shown", Report, Equality, Campaign)


def command(
    target: Target,
    operation: OperationWords = "",
    recipe: RecipeName = "",
    largest: Largest = None,
    kappa: Kappa = None,
    shape: Shapes = None,
    data: Data = None,
    level: Level = "quick",
    require: Require = "stable",
    dtype: Dtypes = None,
    start_seconds: StartSeconds = START_SECONDS,
    baseline: Baseline = None,
    update_baseline: UpdateBaseline = False,
    equal_to: EqualTo = "",
    cases: Cases = None,
    seed: Seed = None,
    jobs: Jobs = None,
    json: Json = False,
    html: Html = None,
) -> None:
    """Find the bugs in a layer norm or RMSNorm, and grade its accuracy.

    The forward and backward pass are run on inputs that broke real kernels, and compared with
    exact answers. Every finding comes with a few lines of Python that show it again.

    Write my_kernel_check.py:

    \b
        import truenorm.verify as tv
        from my_kernel import forward, backward
        subject = tv.Subject(forward=forward, backward=backward,
                             name="my kernel", dtypes=["float32"])

    then run:

    \b
        truenorm verify my_kernel_check.py:subject
        truenorm verify my_kernel_check.py --level full --html report.html
        truenorm verify my_rms_norm_check.py --operation rms_norm
        truenorm verify torch:torch.nn.functional.rms_norm --operation rms_norm
        truenorm verify my_kernel_check.py --require conditional --largest 1e4
        truenorm verify my_kernel_check.py --shape 4096x5120 --data activations.safetensors
        truenorm verify my_kernel_check.py --baseline known.json
        truenorm verify my_kernel_check.py --cases 1000 --seed 7 --jobs 8
        truenorm verify my_kernel_check.py:eager --equal-to my_kernel_check.py:compiled
        truenorm verify my_fused_check.py --operation add_rms_norm,parameters=float32 \\
            --recipe early

    Exit codes:

    \b
        0  clean
        1  there are findings, or a grade is below --require, that the baseline does not have;
           with --equal-to, some bits differ; with --cases, something is wrong in one
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    said: Said = {
        "operation": operation,
        "recipe": recipe,
        "largest": largest,
        "kappa": kappa,
        "shapes": shape or (),
        "data": data or (),
        "dtypes": dtype,
    }
    of_one_report = bool(baseline or update_baseline or html)
    if equal_to:
        if of_one_report or cases or seed or jobs or require != "stable":
            stop(
                "--baseline, --update-baseline, --html, --cases, --seed, --jobs and --require are "
                "for one subject, and not for two: judge each without --equal-to"
            )
        with refusing(CannotRunError, ValueError), progress_bar("comparing") as progress:
            equality = compare_targets(
                target,
                equal_to,
                level=level,
                progress=progress,
                start_seconds=start_seconds,
                **said,
            )
        _print(equality, equality_page.show_equality, json=json)
        raise typer.Exit(0 if equality.passed else 1)
    if cases is not None:
        if of_one_report or recipe or shape or data:
            stop(
                "--cases goes without --recipe, --shape, --data, --baseline, --update-baseline "
                "and --html: give these in a run of their own"
            )
        with (
            refusing(CannotRunError, ValueError),
            progress_bar("judging") as progress,
            workers(jobs) as executor,
        ):
            campaign = campaign_target(
                target,
                Drawing(cases, seed or 1, level, require),
                progress=progress,
                start_seconds=start_seconds,
                executor=executor,
                **said,
            )
        _print(campaign, campaign_page.show_campaign, json=json)
        raise typer.Exit(0 if campaign.passed else 1)
    if seed is not None:
        stop("--seed is what --cases draws with: give that, too")
    if update_baseline:
        check_place("--baseline", baseline or stop("--update-baseline needs --baseline FILE"))
    known = None if update_baseline and baseline and not baseline.exists() else baseline
    write = writer_of("--html", html, "truenorm.verify.report.html")
    with (
        refusing(CannotRunError, ValueError),
        progress_bar("judging") as progress,
        workers(jobs) as executor,
    ):
        report = verify_target(
            target,
            level=level,
            require=require,
            progress=progress,
            baseline=known,
            start_seconds=start_seconds,
            executor=executor,
            **said,
        )
    if update_baseline and baseline:
        report = _updated(report, baseline)
    _print(report, terminal.show, json=json)
    write(report)
    raise typer.Exit(0 if report.passed else 1)


def _updated(report: Report, baseline: Path) -> Report:
    """Write a baseline, and return the report held against it."""
    told = (
        f"{counts(report)} before" if report.baseline else counted(len(report.findings), "finding")
    )
    with refusing(ValueError):
        try:
            report = update_baseline(report, baseline)
        except OSError as refused:
            stop(f"cannot write {baseline}: {refused.strerror}; give --baseline another file")
    sys.stderr.write(f"wrote {baseline}: {told}\n")
    return report


def _print(report: Shown, show: Callable[[Shown, Console], None], *, json: bool) -> None:
    if json:
        typer.echo(to_json(report))
    else:
        show(report, Console(highlight=False))
