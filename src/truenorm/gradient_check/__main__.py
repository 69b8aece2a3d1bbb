"""``python -m truenorm.gradient_check``: check the textbook layer norm or RMSNorm."""

import argparse
import sys
from typing import get_args

import numpy as np

from truenorm import textbook
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.gradient_check.checker import MethodName
from truenorm.gradient_check.result import record_of
from truenorm.textbook import FloatArray
from truenorm.tools import strict_json

GRADIENTS = {"layer_norm": ("dx", "dgamma", "dbeta"), "rms_norm": ("dx", "dgamma")}
EPILOG = """Try --shape 4 17 --offset 1e8 --sigma 1e-3 --method central: there the forward pass
itself loses its digits, and differences of it cannot judge the backward pass. --method jet --tol
1e-12 needs no differences, and shows that backward loses digits, too."""


def check_textbook(options: argparse.Namespace) -> GradientCheck:
    """Check forward and backward of `truenorm.textbook` on random data."""
    random = np.random.default_rng(options.seed)
    x = options.offset + options.sigma * random.standard_normal(options.shape)
    count = len(GRADIENTS[options.operation]) - 1
    parameters = random.standard_normal((count, options.shape[-1]))
    prefix = "rms_norm_" if options.operation == "rms_norm" else ""
    norm_forward = getattr(textbook, f"{prefix}forward")
    norm_backward = getattr(textbook, f"{prefix}backward")

    def forward(*inputs: FloatArray) -> FloatArray:
        y: FloatArray = norm_forward(*inputs, options.eps)[0]
        return y

    def backward(dy: FloatArray, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        gradients: tuple[FloatArray, ...] = norm_backward(
            dy, norm_forward(*inputs, options.eps)[1]
        )
        return gradients

    return gradcheck(
        forward,
        backward,
        [x, *parameters],
        method=options.method,
        tol=options.tol,
        probes=options.probes,
        seed=options.seed,
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m truenorm.gradient_check",
        description="Check the hand-derived gradients of a textbook normalization in float64 "
        "against derivatives of its forward pass, and print their relative errors.",
        epilog=EPILOG,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--operation", choices=GRADIENTS, default="layer_norm", help="the operation to check")
    add("--shape", type=int, nargs="+", default=[4, 8, 16], help="shape of x; the last is D")
    add("--offset", type=float, default=0.0, help="mean of x")
    add("--sigma", type=float, default=1.0, help="standard deviation of x")
    add("--eps", type=float, default=1e-5, help="added to the variance, or the mean square")
    add("--method", choices=get_args(MethodName), default="auto", help="how to differentiate")
    add("--tol", type=float, help="allowed relative error; None: depends on the method")
    add("--probes", type=int, default=4, help="number of random projections of a large array")
    add("--seed", type=int, default=0, help="seed of the random data")
    add("--json", action="store_true", help="print one JSON object instead of the table")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the check; return 0 for PASS, else 1."""
    parser = make_parser()
    options = parser.parse_args(argv)
    if not options.eps >= 0:
        parser.error(f"argument --eps: {options.eps} is negative")
    try:
        result = check_textbook(options)
    except ValueError as error:
        parser.error(str(error))
    names = GRADIENTS[options.operation]
    if options.json:
        print(strict_json.dumps(record_of(result, names), indent=None))
    else:
        for name, check in zip(names, result.inputs, strict=True):
            print(f"{name:7s}{check}")
        print(f"{result.verdict}\n{result.why}")
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main())
