"""``truenorm judge``: judge the results of a kernel that ran on another machine."""

from pathlib import Path
from typing import Annotated

from truenorm.cli.common import JsonOption, argument
from truenorm.cli.judging import (
    BaselineOption,
    BatchOption,
    HtmlOption,
    KappaOption,
    LargestOption,
    RecipeOption,
    ReportFiles,
    RequireOption,
    StrictOption,
    UpdateBaselineOption,
    judging,
)
from truenorm.verify.recordings import judge_recording


def judge_command(
    folder: Annotated[
        Path, argument("FOLDER", "The folder that 'truenorm record' wrote, with results.")
    ],
    recipe: RecipeOption = "",
    largest: LargestOption = None,
    kappa: KappaOption = None,
    strict: StrictOption = False,
    require: RequireOption = "stable",
    batch: BatchOption = "require",
    baseline: BaselineOption = None,
    update_baseline: UpdateBaselineOption = False,
    json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Judge the results of a kernel that ran on another machine.

    The report is that of 'truenorm verify' on the same kernel. 'truenorm record --help' shows
    all steps.

    \b
        truenorm judge norm-cases
        truenorm judge norm-cases --require faithful --html report.html

    Exit codes:

    \b
        0  clean
        1  a finding, or a grade below --require, that is not in the baseline
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    files = ReportFiles(baseline, html, update_baseline=update_baseline)
    with judging() as progress:
        report = judge_recording(
            folder,
            require=require,
            strict=strict,
            progress=progress,
            baseline=files.known,
            batch=batch,
            recipe=recipe,
            largest=largest,
            kappa=kappa,
        )
    files.finish(report, json=json)
