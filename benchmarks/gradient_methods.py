"""``python -m benchmarks.gradient_methods``: how far each method sees, on our layer norm."""
# ruff: noqa: D103, T201
# A command prints its result; what a formula is says its name.

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
from benchmarks.timing import heading, machine
from truenorm.tools import strict_json
from truenorm.tools.progress import status_line
from truenorm.tools.text import table

RESULTS = Path(__file__).parent / "results" / "gradient_methods.json"
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
    """Return what is checked: our own, correctly rounded."""
    _, saved = tn.layer_norm_forward(x, gamma, beta, eps=EPS)
    return tn.layer_norm_backward(dy, saved)


def textbook_backward(dy: Float64, x: Float64, gamma: Float64, beta: Float64) -> tuple[Any, ...]:
    return tn.textbook.backward(dy, tn.textbook.forward(x, gamma, beta, EPS)[1])


def with_an_error(dy: Float64, x: Float64, gamma: Float64, beta: Float64) -> tn.Gradients:
    """Return gradients of which dx is off by a millionth."""
    found = backward(dy, x, gamma, beta)
    return found._replace(dx=found.dx * (1 + 1e-6))


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
    found = []
    for size in SIZES:
        for name, inputs in cases(size):
            for method, form, forward in CONTESTANTS:
                status_line(f"D = {size}, x = {name}: {method}")
                result = tn.gradcheck(forward, backward, inputs, method=method)  # type: ignore[arg-type]
                found.append(
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
    return found


def expansions() -> dict[str, dict[str, Any]]:
    """Return the Taylor remainders of three backward passes where x is hard."""
    _, inputs = list(cases(SIZES[0]))[1]
    passes = {
        "truenorm": backward,
        "textbook in float64": textbook_backward,
        "dx off by 1e-6": with_an_error,
    }
    found = {}
    for name, each in passes.items():
        test = tn.taylor_test(textbook, each, inputs)
        found[name] = {
            "steps": test.steps,
            "remainders": test.remainders,
            "level": test.level,
            "order": test.order,
            "exact": test.exact,
        }
    return found


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
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.gradient_methods", description=__doc__.partition(": ")[2]
    )
    described.add_argument("--json", action="store_true", help="print what --output gets")
    described.add_argument("--output", type=Path, default=RESULTS, help="the JSON file to write")
    arguments = described.parse_args(argv)
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
