"""``truenorm campaign``: judge a kernel on many random cases."""

from typing import Annotated

import typer

from truenorm.cli.common import JsonOption, LevelName
from truenorm.cli.judging import (
    BatchOption,
    FormulaOption,
    JobsOption,
    KappaOption,
    LargestOption,
    OperationOfSubject,
    RequireOption,
    StartSecondsOption,
    StrictOption,
    TargetArgument,
    TypesOption,
    finish,
    judging,
    process_pool,
    subject_options,
)
from truenorm.verify.campaigns import CampaignSettings, campaign_target
from truenorm.verify.report import terminal
from truenorm.verify.running.process import START_SECONDS


def campaign_command(
    target: TargetArgument,
    cases: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Number of cases; each type has an equal share."),
    ] = 1000,
    seed: Annotated[
        int, typer.Option(metavar="S", min=1, help="Random seed of the first cases.")
    ] = 1,
    operation: OperationOfSubject = None,
    formula: FormulaOption = None,
    largest: LargestOption = None,
    kappa: KappaOption = None,
    strict: StrictOption = False,
    level: Annotated[
        LevelName, typer.Option(help="Kinds of cases: full has more widths and longer rows.")
    ] = "quick",
    require: RequireOption = "stable",
    batch: BatchOption = "require",
    dtype: TypesOption = None,
    start_seconds: StartSecondsOption = START_SECONDS,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Judge a layer norm or RMSNorm on many random cases.

    Draws new cases from the families of inputs of 'truenorm verify', compares each element with
    its exact answer, and prints a summary. Memory use does not depend on the number of cases.

    \b
        truenorm campaign my_kernel_check.py --cases 1000 --seed 7 --jobs 8
        truenorm campaign my_kernels.py:rms_norm --operation rms_norm

    'truenorm verify --help' shows how to describe a kernel.

    Exit codes:

    \b
        0  every element has the required grade, and nothing else is wrong
        1  a wrong result, another finding, or cases that did not run
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    overrides = subject_options(
        start_seconds, formula, operation=operation, largest=largest, kappa=kappa, dtypes=dtype
    )
    with judging() as progress, process_pool(jobs) as executor:
        result = campaign_target(
            target,
            CampaignSettings(cases, seed, level, require, strict, batch),
            progress=progress,
            start_seconds=start_seconds,
            executor=executor,
            **overrides,
        )
    finish(result, terminal.show_campaign, json=json)
