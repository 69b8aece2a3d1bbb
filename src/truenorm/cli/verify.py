"""``truenorm verify``: judge a kernel."""

from truenorm.cli.common import JsonOption, check_positive
from truenorm.cli.judging import (
    BaselineOption,
    BatchOption,
    DataOption,
    FormulaOption,
    HtmlOption,
    JobsOption,
    KappaOption,
    LargestOption,
    LevelOption,
    OperationOfSubject,
    RecipeOption,
    ReportFiles,
    RequireOption,
    ShapesOption,
    StartSecondsOption,
    StrictOption,
    TargetArgument,
    TimeOption,
    TypesOption,
    UpdateBaselineOption,
    judging,
    subject_options,
)
from truenorm.verify.judge import verify_target
from truenorm.verify.running.process import START_SECONDS
from truenorm.verify.time_limit import SECONDS


def verify_command(
    target: TargetArgument,
    operation: OperationOfSubject = None,
    formula: FormulaOption = None,
    recipe: RecipeOption = "",
    largest: LargestOption = None,
    kappa: KappaOption = None,
    strict: StrictOption = False,
    shape: ShapesOption = None,
    data: DataOption = None,
    level: LevelOption = "quick",
    require: RequireOption = "stable",
    batch: BatchOption = "require",
    time: TimeOption = SECONDS,
    dtype: TypesOption = None,
    start_seconds: StartSecondsOption = START_SECONDS,
    baseline: BaselineOption = None,
    update_baseline: UpdateBaselineOption = False,
    jobs: JobsOption = 1,
    json: JsonOption = False,
    html: HtmlOption = None,
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
        truenorm verify my_kernels.py:softmax --formula formulas.py:softmax
        truenorm verify my_kernel_check.py --strict
        truenorm verify my_kernel_check.py --shape 4096x5120 --data x.npz
        truenorm verify my_kernel_check.py --baseline known.json
        truenorm verify my_fused_check.py --recipe early \\
            --operation add_rms_norm,parameters=float32

    Exit codes:

    \b
        0  clean
        1  a finding, or a grade below --require, that is not in the baseline
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    check_positive("--time", time)
    overrides = subject_options(
        start_seconds,
        formula,
        operation=operation,
        recipe=recipe,
        largest=largest,
        kappa=kappa,
        shapes=shape or (),
        data=data or (),
        dtypes=dtype,
    )

    files = ReportFiles(baseline, html, update_baseline=update_baseline)
    with judging() as progress:
        report = verify_target(
            target,
            level=level,
            require=require,
            strict=strict,
            progress=progress,
            baseline=files.known,
            batch=batch,
            time=time,
            start_seconds=start_seconds,
            jobs=jobs,
            **overrides,
        )
    files.finish(report, json=json)
