"""``python -m truenorm.gradient_check``: check the textbook layer or RMS normalization."""

import argparse
import sys
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from truenorm import textbook
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.gradient_check.checker import MethodName
from truenorm.gradient_check.result import record_of
from truenorm.textbook import FloatArray
from truenorm.tools import strict_json

GRADIENTS = {"layer_norm": ("dx", "dgamma", "dbeta"), "rms_norm": ("dx", "dgamma")}
Passes = tuple[Callable[..., Any], Callable[..., tuple[FloatArray, ...]]]
PASSES: dict[str, Passes] = {
    "layer_norm": (textbook.forward, textbook.backward),
    "rms_norm": (textbook.rms_norm_forward, textbook.rms_norm_backward),
}


def norm_check(arguments: argparse.Namespace) -> GradientCheck:
    """Check forward and backward of `truenorm.textbook` on random data."""
    random = np.random.default_rng(arguments.seed)
    x = arguments.offset + arguments.sigma * random.standard_normal(arguments.shape)
    count = len(GRADIENTS[arguments.operation]) - 1
    parameters = random.standard_normal((count, arguments.shape[-1]))
    normalize, differentiate = PASSES[arguments.operation]

    def forward(*inputs: FloatArray) -> FloatArray:
        y: FloatArray = normalize(*inputs, arguments.eps)[0]
        return y

    def backward(dy: FloatArray, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        _, saved = normalize(*inputs, arguments.eps)
        return differentiate(dy, saved)

    return gradcheck(
        forward,
        backward,
        [x, *parameters],
        method=arguments.method,
        tol=arguments.tol,
        probes=arguments.probes,
        seed=arguments.seed,
    )


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="python -m truenorm.gradient_check",
        description="Check the hand-derived gradients of a textbook normalization "
        "in float64 against derivatives of its forward pass, and print their relative errors.",
        epilog="Try --shape 4 17 --offset 1e8 --sigma 1e-3 --method central: there the forward "
        "pass itself loses its digits, and differences of it cannot judge the backward pass. "
        "--method jet --tol 1e-12 needs no differences, and shows that backward loses digits, "
        "too.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = result.add_argument
    option(
        "--operation", choices=list(PASSES), default="layer_norm", help="the operation to check"
    )
    option(
        "--shape", type=int, nargs="+", default=[4, 8, 16], help="shape of x; the last number is D"
    )
    option("--offset", type=float, default=0.0, help="mean of x")
    option("--sigma", type=float, default=1.0, help="standard deviation of x")
    option("--eps", type=float, default=1e-5, help="added to the variance, or the mean square")
    option(
        "--method",
        choices=get_args(MethodName),
        default="auto",
        help="how to differentiate forward",
    )
    option(
        "--tol",
        type=float,
        default=None,
        help="allowed relative error; None: depends on the method",
    )
    option("--probes", type=int, default=4, help="number of random projections of a large array")
    option("--seed", type=int, default=0, help="seed of the random data")
    option("--json", action="store_true", help="print one JSON object instead of the table")
    return result


def main(argv: list[str] | None = None) -> int:
    """Run the check; return 0 for PASS, else 1."""
    command_line = parser()
    arguments = command_line.parse_args(argv)
    if not arguments.eps >= 0:
        command_line.error(f"argument --eps: {arguments.eps} must not be negative")
    try:
        result = norm_check(arguments)
    except ValueError as error:
        command_line.error(str(error))
    names = GRADIENTS[arguments.operation]
    if arguments.json:
        print(strict_json.dumps(record_of(result, names), indent=None))
    else:
        for name, check in zip(names, result.inputs, strict=True):
            print(f"{name:7s}{check}")
        print(f"{result.verdict}\n{result.why}")
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main())
