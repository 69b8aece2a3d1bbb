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
from benchmarks.common import RESULTS, heading, machine, markdown_table, options
from truenorm.tools import strict_json
from truenorm.tools.progress import status_line

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
                place = {"D": size, "x": name, "method": method, "forward": form}
                numbers = {each: getattr(result, each) for each in ("error", "floor", "tol")}
                records.append(place | numbers | {"verdict": str(result.verdict)})
    return records


def expansions() -> dict[str, dict[str, Any]]:
    """Return the Taylor remainders of three backward passes where x is hard."""
    _, inputs = list(cases(SIZES[0]))[1]
    passes = {
        "truenorm": backward,
        "textbook in float64": textbook_backward,
        "dx off by 1e-6": perturbed_backward,
    }
    names = ("steps", "remainders", "level", "order", "exact")
    tests = {name: tn.taylor_test(textbook, each, inputs) for name, each in passes.items()}
    return {name: {each: getattr(test, each) for each in names} for name, test in tests.items()}


def main(argv: list[str] | None = None) -> int:
    parser = options("gradient_methods", "Check our layer norm by every method.", output=FILE)
    report: dict[str, Any] = {
        "machine": machine(1, packages=("numpy", "python-flint", "truenorm")),
        "checks": checks(),
        "taylor": expansions(),
    }
    strict_json.write(report, parser.parse_args(argv).output)
    rows = [
        [f"{each:.1e}" if isinstance(each, float) else str(each) for each in record.values()]
        for record in report["checks"]
    ]
    print(heading(report["machine"]), markdown_table(list(report["checks"][0]), rows), sep="\n\n")
    for name, test in report["taylor"].items():
        print(f"\nTaylor, {name}: order {test['order']:.2f}, level {test['level']:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
