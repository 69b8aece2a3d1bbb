"""``truenorm compare``: compare the bits of two kernels."""

from typing import Annotated

from truenorm.cli.common import JsonOption, argument
from truenorm.cli.judging import (
    TARGET,
    DataOption,
    FormulaOption,
    KappaOption,
    LargestOption,
    LevelOption,
    OperationOfSubject,
    ShapesOption,
    StartSecondsOption,
    TypesOption,
    finish,
    judging,
    subject_options,
)
from truenorm.verify.equality import compare_targets
from truenorm.verify.report import terminal
from truenorm.verify.running.process import START_SECONDS


def compare_command(
    first: Annotated[str, argument("FIRST", TARGET)],
    second: Annotated[str, argument("SECOND", "The kernel that should have the same bits.")],
    operation: OperationOfSubject = None,
    formula: FormulaOption = None,
    largest: LargestOption = None,
    kappa: KappaOption = None,
    shape: ShapesOption = None,
    data: DataOption = None,
    level: LevelOption = "quick",
    dtype: TypesOption = None,
    start_seconds: StartSecondsOption = START_SECONDS,
    json: JsonOption = False,
) -> None:
    """Compare two layer norms or RMSNorms bit by bit.

    For kernels that should agree: those of training and inference, eager and compiled, or one
    shard and eight. Shows where they differ, by how much, and which of the two is more accurate.

    \b
        truenorm compare my_kernels.py:eager my_kernels.py:compiled
        truenorm compare train.py:rms_norm serve.py:rms_norm \\
            --operation rms_norm --dtype bfloat16 --shape 4096x5120

    'truenorm verify --help' shows how to describe a kernel.

    Exit codes:

    \b
        0  equal bits in every case
        1  bits that differ, or a kernel that failed
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    overrides = subject_options(
        start_seconds,
        formula,
        operation=operation,
        largest=largest,
        kappa=kappa,
        shapes=shape or (),
        data=data or (),
        dtypes=dtype,
    )
    with judging("comparing") as progress:
        equality = compare_targets(
            first,
            second,
            level=level,
            progress=progress,
            start_seconds=start_seconds,
            **overrides,
        )
    finish(equality, terminal.show_equality, json=json)
