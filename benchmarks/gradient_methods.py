"""``python -m benchmarks.gradient_methods``: check our layer norm by every gradient check method.

The report goes to results/gradient_methods.json; `benchmarks.figures` draws its Taylor remainders.
"""
# ruff: noqa: D103
# The names of formulas explain them.

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
from benchmarks.common import RESULTS, heading, machine, options
from truenorm.tools import strict_json
from truenorm.tools.progress import status_line
from truenorm.tools.text import table

FILE = RESULTS / "gradient_methods.json"
EPS = 1e-5
SIZES = (16, 1024)
Float64 = NDArray[np.float64]


def textbook(x: Float64, gamma: Float64, beta: Float64) -> Float64:
    y, _ = tn.textbook.forward(x, gamma, beta, EPS)
    return y  # type: ignore[return-value]


def recentred(x: Float64, gamma: Float64, beta: Float64) -> Float64:
    c = x - x.mean(axis=-1, keepdims=True)
    return textbook(c, gamma, beta)


def backward(dy: Float64, x: Float64, gamma: Float64, beta: Float64) -> tn.Gradients:
    """Return our gradients, correctly rounded."""
    _, saved = tn.layer_norm_forward(x, gamma, beta, eps=EPS)
    return tn.layer_norm_backward(dy, saved)


def textbook_backward(dy: Float64, x: Float64, gamma: Float64, beta: Float64) -> tuple[Any, ...]:
    return tn.textbook.backward(dy, tn.textbook.forward(x, gamma, beta, EPS)[1])


def perturbed_backward(dy: Float64, x: Float64, gamma: Float64, beta: Float64) -> tn.Gradients:
    """Return gradients with a dx that is off by a millionth."""
    gradients = backward(dy, x, gamma, beta)
    return gradients._replace(dx=gradients.dx * (1 + 1e-6))


CONTESTANTS: list[tuple[str, str, Callable[..., Float64]]] = [
    ("central", "textbook", textbook),
    ("complex", "textbook", textbook),
    ("complex", "re-centred", recentred),
    ("jet", "textbook", textbook),
]


def cases(size: int) -> Iterator[tuple[str, list[Float64]]]:
    random = np.random.default_rng(3)
    gamma, beta = random.standard_normal((2, size))
    noise = random.standard_normal((1, size))
    yield "N(0,1)", [noise, gamma, beta]
    yield "1e8 + 1e-3 N(0,1)", [1e8 + 1e-3 * noise, gamma, beta]


def checks() -> list[dict[str, Any]]:
    """Check our backward by every method."""
    records = []
    for size in SIZES:
        for name, inputs in cases(size):
            for method, form, forward in CONTESTANTS:
                status_line(f"D = {size}, x = {name}: {method}")
                result = tn.gradcheck(forward, backward, inputs, method=method)  # type: ignore[arg-type]
                records.append(
                    {
                        "D": size,
                        "x": name,
                        "method": method,
                        "forward": form,
                        "error": result.error,
                        "floor": result.floor,
                        "tol": result.tol,
                        "verdict": str(result.verdict),
                    }
                )
    return records


def expansions() -> dict[str, dict[str, Any]]:
    """Return the Taylor remainders of three backward passes where x is hard."""
    _, inputs = list(cases(SIZES[0]))[1]
    passes = {
        "truenorm": backward,
        "textbook in float64": textbook_backward,
        "dx off by 1e-6": perturbed_backward,
    }
    tests = {}
    for name, each in passes.items():
        test = tn.taylor_test(textbook, each, inputs)
        tests[name] = {
            "steps": test.steps,
            "remainders": test.remainders,
            "level": test.level,
            "order": test.order,
            "exact": test.exact,
        }
    return tests


def report_of(records: list[dict[str, Any]]) -> str:
    return table(
        ["D", "x", "method", "forward", "error", "floor", "allowed", "verdict"],
        [
            [
                str(record["D"]),
                record["x"],
                record["method"],
                record["forward"],
                f"{record['error']:.1e}",
                f"{record['floor']:.1e}",
                f"{record['tol']:.0e}",
                record["verdict"],
            ]
            for record in records
        ],
    )


def main(argv: list[str] | None = None) -> int:
    parser = options("gradient_methods", "Check our layer norm by every method.", output=FILE)
    arguments = parser.parse_args(argv)
    report: dict[str, Any] = {
        "machine": machine(1, packages=("numpy", "python-flint", "truenorm")),
        "checks": checks(),
        "taylor": expansions(),
    }
    text = strict_json.write(report, arguments.output)
    if arguments.json:
        print(text)
        return 0
    print(heading(report["machine"]))
    print(report_of(report["checks"]))
    print()
    for name, test in report["taylor"].items():
        print(f"Taylor, {name}: order {test['order']:.2f}, level {test['level']:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
