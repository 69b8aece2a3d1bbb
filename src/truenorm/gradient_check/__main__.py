"""``python -m truenorm.gradient_check``: check the textbook layer normalization, or RMSNorm."""

import argparse
import sys
from collections.abc import Callable
from typing import get_args

import numpy as np

from truenorm import textbook
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.gradient_check.checker import MethodName
from truenorm.gradient_check.result import record_of
from truenorm.textbook import FloatArray
from truenorm.tools import strict_json

FORWARD: dict[str, Callable[..., tuple[FloatArray, textbook.Saved]]] = {
    "layer_norm": textbook.forward,
    "rms_norm": textbook.rms_norm_forward,
}
BACKWARD: dict[str, Callable[..., tuple[FloatArray, ...]]] = {
    "layer_norm": textbook.backward,
    "rms_norm": textbook.rms_norm_backward,
}
NAMES = {"layer_norm": ("dx", "dgamma", "dbeta"), "rms_norm": ("dx", "dgamma")}


def norm_check(arguments: argparse.Namespace) -> GradientCheck:
    """Check forward and backward of `truenorm.textbook` on random data."""
    random = np.random.default_rng(arguments.seed)
    x = arguments.offset + arguments.sigma * random.standard_normal(arguments.shape)
    parameters = len(NAMES[arguments.operation]) - 1
    drawn = random.standard_normal((parameters, arguments.shape[-1]))

    def both(*inputs: FloatArray) -> tuple[FloatArray, textbook.Saved]:
        return FORWARD[arguments.operation](*inputs, eps=arguments.eps)

    def backward(dy: FloatArray, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        return BACKWARD[arguments.operation](dy, both(*inputs)[1])

    return gradcheck(
        lambda *inputs: both(*inputs)[0],
        backward,
        [x, *drawn],
        method=arguments.method,
        tol=arguments.tol,
        probes=arguments.probes,
        seed=arguments.seed,
    )


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    described = argparse.ArgumentParser(
        prog="python -m truenorm.gradient_check",
        description="Check the hand-derived gradients of the textbook layer norm or RMSNorm "
        "(float64) against derivatives of its forward pass, and print the relative error of each.",
        epilog="Try --shape 4 17 --offset 1e8 --sigma 1e-3 --method central: there the forward "
        "pass itself has lost its digits, and differences of it cannot judge the backward pass. "
        "With --method jet they are not needed, and show that backward has lost digits, too.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = described.add_argument
    option("--operation", choices=tuple(NAMES), default="layer_norm", help="which norm")
    option("--shape", type=int, nargs="+", default=[4, 8, 16], help="of x; the last is D")
    option("--offset", type=float, default=0.0, help="the mean of x")
    option("--sigma", type=float, default=1.0, help="the spread of x")
    option("--eps", type=float, default=1e-5, help="added to the variance, or to the mean square")
    option("--method", choices=get_args(MethodName), default="auto", help="how to differentiate")
    option("--tol", type=float, default=None, help="the relative error allowed; None: by method")
    option("--probes", type=int, default=4, help="random projections of a larger array")
    option("--seed", type=int, default=0, help="of the random data")
    option("--json", action="store_true", help="print one JSON object instead of the table")
    return described


def main(argv: list[str] | None = None) -> int:
    """Run the check; return 0 for PASS, else 1."""
    described = parser()
    arguments = described.parse_args(argv)
    if not arguments.eps >= 0:
        described.error(f"argument --eps: {arguments.eps} is negative")
    try:
        result = norm_check(arguments)
    except ValueError as refused:
        described.error(str(refused))
    names = NAMES[arguments.operation]
    if arguments.json:
        print(strict_json.dumps(record_of(result, names), indent=None))
    else:
        for name, check in zip(names, result.inputs, strict=True):
            print(f"{name:7s}{check}")
        print(f"{result.verdict}\n{result.why}")
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main())
