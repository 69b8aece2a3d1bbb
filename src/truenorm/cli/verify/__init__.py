"""``truenorm verify``: judge an implementation."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console

from truenorm.cli import stop
from truenorm.cli.output import check_place, refusing, writer_of
from truenorm.cli.progress import progress_bar
from truenorm.cli.verify.options import (
    Baseline,
    Cases,
    Data,
    Dtypes,
    EqualTo,
    Html,
    Jobs,
    Json,
    Kappa,
    Largest,
    Level,
    OperationWords,
    RecipeName,
    Require,
    Seed,
    Shapes,
    StartSeconds,
    Target,
    UpdateBaseline,
)
from truenorm.cli.verify.workers import workers
from truenorm.tools.text import counted
from truenorm.verify.baselines import comparing
from truenorm.verify.campaigns.campaign import Drawing
from truenorm.verify.campaigns.summary import Campaign
from truenorm.verify.equal.report import Equality
from truenorm.verify.grading.report import Report
from truenorm.verify.pages import campaign as campaign_page
from truenorm.verify.pages import equality as equality_page
from truenorm.verify.pages import terminal
from truenorm.verify.pages.json_report import to_json
from truenorm.verify.pages.wording import counts
from truenorm.verify.runs.subject_process import START_SECONDS, CannotRunError
from truenorm.verify.target import Said, campaign_target, compare_targets, verify_target

__all__ = ["command"]

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
        _print(equality, equality_page.show, json=json)
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
        _print(campaign, campaign_page.show, json=json)
        raise typer.Exit(0 if campaign.passed else 1)
    if seed is not None:
        stop("--seed is what --cases draws with: give that, too")
    if update_baseline:
        check_place("--baseline", baseline or stop("--update-baseline needs --baseline FILE"))
    known = None if update_baseline and baseline and not baseline.exists() else baseline
    write = writer_of("--html", html, "truenorm.verify.pages.html_report")
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
            report = comparing.update_baseline(report, baseline)
        except OSError as refused:
            stop(f"cannot write {baseline}: {refused.strerror}; give --baseline another file")
    sys.stderr.write(f"wrote {baseline}: {told}\n")
    return report


def _print(report: Shown, show: Callable[[Shown, Console], None], *, json: bool) -> None:
    if json:
        typer.echo(to_json(report))
    else:
        show(report, Console(highlight=False))
