"""``python -m truenorm.gradient_check``: check a pair of a file, or the textbook's norms.

It needs NumPy alone. With a file it is the command ``truenorm gradcheck``.
"""

import argparse
from typing import get_args

import numpy as np

from truenorm import textbook
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.gradient_check.checker import MethodName
from truenorm.gradient_check.pairs import CannotCheckError, check_target
from truenorm.gradient_check.result import record_of
from truenorm.textbook import FloatArray
from truenorm.tools import strict_json
from truenorm.tools.command_line import run_command, stop
from truenorm.tools.command_texts import GRADCHECK
from truenorm.tools.text import printable

GRADIENTS = {"layer_norm": ("dx", "dgamma", "dbeta"), "rms_norm": ("dx", "dgamma")}
PROGRAM = "python -m truenorm.gradient_check"
TEXTBOOK = """
Without a file, checks the gradients of a textbook normalization of random
data in float64. Try --shape 4 17 --offset 1e8 --sigma 1e-3 --method central:
there the forward pass itself loses its digits, and differences of it cannot
judge the backward pass. --method jet --tol 1e-12 needs no differences, and
shows that backward loses digits, too."""


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
        prog=PROGRAM,
        usage="%(prog)s [TARGET] [OPTIONS]",
        description=f"{GRADCHECK.for_program(PROGRAM)}\n{TEXTBOOK}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add, texts = parser.add_argument, GRADCHECK.options
    add("target", nargs="?", metavar="TARGET", help=texts["target"])
    add("--method", choices=get_args(MethodName), default="auto", help=texts["method"])
    add("--tol", type=float, help=texts["tol"])
    add("--probes", type=int, default=4, help=texts["probes"])
    add("--seed", type=int, default=0, help=texts["seed"])
    add("--json", action="store_true", help=texts["json"])
    add = parser.add_argument_group("options without a file").add_argument
    add("--operation", choices=GRADIENTS, default="layer_norm", help="The operation to check.")
    add("--shape", type=int, nargs="+", default=[4, 8, 16], help="Shape of x; the last is D.")
    add("--offset", type=float, default=0.0, help="Mean of x.")
    add("--sigma", type=float, default=1.0, help="Standard deviation of x.")
    add("--eps", type=float, default=1e-5, help="Added to the variance, or the mean square.")
    return parser


def main(argv: list[str] | None = None) -> None:
    """Run the check; exit with 0 for PASS, 1 for another verdict, 2 if it cannot run."""
    parser = make_parser()
    options = parser.parse_args(argv)
    names: tuple[str, ...] = ()
    if options.target is None:
        names = GRADIENTS[options.operation]
        result = _check_random_data(options)
    else:
        for name in ("operation", "shape", "offset", "sigma", "eps"):
            if getattr(options, name) != parser.get_default(name):
                stop(f"--{name} is for the textbook: give it without {options.target}")
        try:
            result = check_target(
                options.target,
                method=options.method,
                tol=options.tol,
                probes=options.probes,
                seed=options.seed,
            )
        except CannotCheckError as error:
            stop(str(error))
    if options.json:
        print(strict_json.dumps(record_of(result, names or None)))
    elif names:
        for name, check in zip(names, result.inputs, strict=True):
            print(f"{name:7s}{check}")
        print(f"{result.verdict}\n{result.why}")
    else:
        print("\n".join(map(printable, str(result).splitlines())))
    raise SystemExit(0 if result else 1)


def _check_random_data(options: argparse.Namespace) -> GradientCheck:
    """Check the textbook after its options."""
    if min(options.shape) < 1:
        stop(f"--shape must have numbers above zero, got {options.shape}")
    if not 0 <= options.eps < np.inf:
        stop(f"--eps must be finite and at least 0, got {options.eps}")
    for name in ("offset", "sigma"):
        if not np.isfinite(value := getattr(options, name)):
            stop(f"--{name} must be finite, got {value}")
    if options.seed < 0:
        stop(f"--seed must be at least 0, got {options.seed}")
    try:
        return check_textbook(options)
    except ValueError as error:
        stop(str(error))


if __name__ == "__main__":
    run_command(main)
