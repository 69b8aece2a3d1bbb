"""``truenorm verify``: judge an implementation."""

import sys
from collections.abc import Callable
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
    refusing,
    writer_of,
)
from truenorm.cli.progress import progress_bar
from truenorm.tools.text import counted
from truenorm.verify.baselines import comparing
from truenorm.verify.equal.report import Equality
from truenorm.verify.grading.report import Report
from truenorm.verify.pages import equality as equality_page
from truenorm.verify.pages import terminal
from truenorm.verify.pages.json_report import to_json
from truenorm.verify.pages.wording import counts
from truenorm.verify.runs.subject_process import START_SECONDS, CannotRunError
from truenorm.verify.target import Said, compare_targets, verify_target

__all__ = ["GradeName", "LevelName", "command"]

LevelName = Literal["quick", "full"]
GradeName = Literal["wrong", "unstable", "conditional", "stable", "faithful", "correct"]
Shown = TypeVar("Shown", Report, Equality)


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A Python file, and after a colon the name of the Subject in it "
            "('subject' if no name is given). The file is executed. Or torch:PATH, a function or "
            "a module of PyTorch as it is imported, such as torch:torch.nn.functional.rms_norm; "
            "--operation says what it computes.",
            show_default=False,
        ),
    ],
    operation: Annotated[
        str,
        typer.Option(
            metavar="NAME[,OPTION=...]",
            help="What it computes: layer_norm, rms_norm, add_layer_norm or add_rms_norm; then, "
            "with commas before them, what is not the usual: gain=zero-centred, beta=true, "
            "parameters=TYPE, result=TYPE, sum=unrounded.",
            show_default="what the subject says, which is layer_norm unless it says otherwise",
        ),
    ] = "",
    recipe: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Where it must round on the way to 16 bits, such as late or early. "
            "By default, whatever recipe it has is told.",
            show_default=False,
        ),
    ] = "",
    largest: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="The largest |x| that it claims to be right for, such as 1e4: "
            "what is beyond is left out of the grade.",
            show_default=False,
        ),
    ] = None,
    kappa: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="The same of the condition number rms(x)/sqrt(var + eps).",
            show_default=False,
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROWSxD",
            help="Judge it on ordinary rows of this shape as well, such as 4096x5120 or "
            "8x1024x4096, in every type; may be given again for others.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="And on saved tensors: a .npz or .safetensors file with x (or input, "
            "hidden_states), and if you like gamma (weight), beta (bias), dy (grad), residual, "
            "dsum and eps. May be given again.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[
        LevelName, typer.Option(help="How much to try: some seconds, or some minutes.")
    ] = "quick",
    require: Annotated[GradeName, typer.Option(help="The lowest grade that passes.")] = "stable",
    dtype: Annotated[
        list[Dtype] | None,
        typer.Option(
            metavar="TYPE",
            help="Judge this type alone, such as float32; may be given again for others. "
            "By default, all that the subject declares; of torch:PATH, float32 and bfloat16.",
            show_default=False,
        ),
    ] = None,
    start_seconds: Annotated[
        float, typer.Option(help="How long the file may take to import, or to compile.")
    ] = START_SECONDS,
    baseline: Annotated[
        Path | None,
        file_option(
            "A file of known findings, which pass and are listed; new ones fail, and vanished "
            "ones are told."
        ),
    ] = None,
    update_baseline: Annotated[
        bool,
        typer.Option(
            "--update-baseline",
            help="Write what is found now to that file; reasons in it are kept.",
        ),
    ] = False,
    equal_to: Annotated[
        str,
        typer.Option(
            metavar="TARGET",
            help="Compare the bits with those of this subject instead: where they differ, by how "
            "much, and which of the two is nearer to the exact answer.",
            show_default=False,
        ),
    ] = "",
    json: Annotated[bool, json_option("the report")] = False,
    html: Annotated[
        Path | None, file_option("Also write the report, with plots, to one HTML file.")
    ] = None,
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
        truenorm verify my_kernel_check.py:eager --equal-to my_kernel_check.py:compiled
        truenorm verify my_fused_check.py --operation add_rms_norm,parameters=float32 \\
            --recipe early

    Exit codes:

    \b
        0  clean
        1  there are findings, or a grade is below --require, that the baseline does not have;
           with --equal-to, some bits differ
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
    if equal_to:
        if baseline or html:
            stop("--baseline and --html are for one subject; of two there is --json")
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
    if update_baseline:
        check_place("--baseline", baseline or stop("--update-baseline needs --baseline FILE"))
    known = None if update_baseline and baseline and not baseline.exists() else baseline
    write = writer_of("--html", html, "truenorm.verify.pages.html_report")
    with refusing(CannotRunError, ValueError), progress_bar("judging") as progress:
        report = verify_target(
            target,
            level=level,
            require=require,
            progress=progress,
            baseline=known,
            start_seconds=start_seconds,
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
