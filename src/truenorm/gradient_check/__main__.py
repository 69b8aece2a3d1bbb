"""``python -m truenorm.gradient_check``: check the textbook layer normalization."""

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


def layer_norm_check(arguments: argparse.Namespace) -> GradientCheck:
    """Check forward and backward of `truenorm.textbook` on random data."""
    random = np.random.default_rng(arguments.seed)
    x = arguments.offset + arguments.sigma * random.standard_normal(arguments.shape)
    gamma, beta = random.standard_normal((2, arguments.shape[-1]))

    def forward(x: FloatArray, gamma: FloatArray, beta: FloatArray) -> FloatArray:
        return textbook.forward(x, gamma, beta, arguments.eps)[0]

    def backward(
        dy: FloatArray, x: FloatArray, gamma: FloatArray, beta: FloatArray
    ) -> tuple[FloatArray, ...]:
        _, saved = textbook.forward(x, gamma, beta, arguments.eps)
        return textbook.backward(dy, saved)

    return gradcheck(
        forward,
        backward,
        [x, gamma, beta],
        method=arguments.method,
        tol=arguments.tol,
        probes=arguments.probes,
        seed=arguments.seed,
    )


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    described = argparse.ArgumentParser(
        prog="python -m truenorm.gradient_check",
        description="Check the hand-derived gradients of the textbook layer normalization "
        "(float64) against derivatives of its forward pass, and print the relative error of each.",
        epilog="Try --shape 4 17 --offset 1e8 --sigma 1e-3 --method central: there the forward "
        "pass itself has lost its digits, and differences of it cannot judge the backward pass. "
        "With --method jet they are not needed, and show that backward has lost digits, too.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = described.add_argument
    option("--shape", type=int, nargs="+", default=[4, 8, 16], help="of x; the last is D")
    option("--offset", type=float, default=0.0, help="the mean of x")
    option("--sigma", type=float, default=1.0, help="the spread of x")
    option("--eps", type=float, default=1e-5, help="added to the variance")
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
        result = layer_norm_check(arguments)
    except ValueError as refused:
        described.error(str(refused))
    names = ("dx", "dgamma", "dbeta")
    if arguments.json:
        print(strict_json.dumps(record_of(result, names), indent=None))
    else:
        for name, check in zip(names, result.inputs, strict=True):
            print(f"{name:7s}{check}")
        print(f"{result.verdict}\n{result.why}")
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main())
