"""``python -m benchmarks.harnesses``: count wrong kernels that the rules of harnesses accept.

The rules are imitations: each has the inputs and the tolerance of a harness that trains or ranks
kernel writers, and contains no line of it. The kernels are the planted bugs of the judge's tests,
in float32, whose y the judge calls wrong, unstable or conditional. The counts go to
results/harnesses.json, which docs/judge/reward.md shows.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import RESULTS, machine, markdown_table, options, publish
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, Float64s

FILES = (RESULTS / "harnesses.json",)
ROWS, SIZE, EPS, SEEDS = 64, 1024, float(np.float32(1e-5)), 5
BAD = ("wrong", "unstable", "conditional")


class Rule(NamedTuple):
    """The check of a harness: `accepts` compares y with the reference, both in float64."""

    harness: str
    inputs: str
    tolerance: str
    accepts: Callable[[Float64s, Float64s], bool]
    plain: bool  # x U(0, 1), gamma 1, beta 0; else all are standard normal


def close(tolerance: float) -> Callable[[Float64s, Float64s], bool]:
    """Return the rule of `allclose` with the same absolute and relative tolerance."""
    return lambda y, reference: bool(
        np.all(np.abs(y - reference) <= tolerance + tolerance * np.abs(reference))
    )


def both_large(y: Float64s, reference: Float64s) -> bool:
    """Return True unless an element has a large absolute and a large relative error."""
    error = np.abs(y - reference)
    wrong = (error > 1e-2) & (error / (np.abs(reference) + 1e-8) > 1e-2)
    return bool(np.isfinite(y).all() and not wrong.any())


def small_maximum(y: Float64s, reference: Float64s) -> bool:
    """Return True if the largest error is small relative to the largest result."""
    return bool(np.abs(y - reference).max() < 0.05 + 0.02 * np.abs(reference).max())


PLAIN, DRAWN = "x U(0, 1), gamma 1, beta 0", "x, gamma and beta N(0, 1)"
RULES = (
    Rule("KernelBench", PLAIN, "atol = rtol = 1e-4", close(1e-4), True),
    Rule("KernelBench, v0.1", PLAIN, "atol = rtol = 1e-2", close(1e-2), True),
    Rule("robust-kbench", DRAWN, "atol = rtol = 1e-5", close(1e-5), False),
    Rule("FlashInfer-Bench", DRAWN, "absolute or relative error 1e-2", both_large, False),
    Rule("OpenEnv kernrl", PLAIN, "largest error < 0.05 + 0.02 max(y)", small_maximum, True),
)


def bugs() -> dict[str, Subject]:
    """Return the planted bugs of plain norms in float32 that have a bad y."""
    # Here, since Sphinx calls `page` without the packages that the tests need.
    from shared.verify.planted.registry import PLANTED

    return {
        name: bug.subject
        for name, bug in PLANTED.items()
        if bug.subject.forward
        and bug.subject.operation.spec in ("layer_norm", "rms_norm")
        and "float32" in bug.subject.dtypes
        and bug.grades.get("y") in BAD
    }


def inputs(rule: Rule, seed: int, *, beta: bool) -> dict[str, Array]:
    """Return x, gamma and, if the norm has it, beta."""
    random = np.random.default_rng(seed)
    draw = random.random if rule.plain else random.standard_normal
    arrays = {"x": draw((ROWS, SIZE))}
    arrays["gamma"] = np.ones(SIZE) if rule.plain else random.standard_normal(SIZE)
    if beta:
        arrays["beta"] = np.zeros(SIZE) if rule.plain else random.standard_normal(SIZE)
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def reference(arrays: Mapping[str, Array]) -> Float64s:
    """Return y, computed in float64 and rounded once; a beta means that a mean is subtracted."""
    x, gamma = arrays["x"].astype(np.float64), arrays["gamma"]
    c = x - x.mean(axis=-1, keepdims=True) if "beta" in arrays else x
    xhat = c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + EPS)
    y: Float64s = (gamma * xhat + arrays.get("beta", 0.0)).astype(np.float32).astype(np.float64)
    return y


def passes(rule: Rule, subject: Subject) -> bool:
    """Return True if a rule accepts a kernel with every seed."""
    return all(_results(rule, subject))


def _results(rule: Rule, subject: Subject) -> Iterator[bool]:
    assert subject.forward is not None
    names = [each.name for each in subject.operation.inputs if each.role == "parameter"]
    for seed in range(SEEDS):
        arrays = inputs(rule, seed, beta="beta" in names)
        expected = reference(arrays)
        try:
            with np.errstate(all="ignore"):
                returned = subject.forward(*(each.copy() for each in arrays.values()), EPS)
        except Exception:  # any exception is the kernel's
            yield False
            return
        y = np.asarray(returned[0] if subject.backward else returned).astype(np.float64)
        yield y.shape == expected.shape and rule.accepts(y, expected)


def page(report: Mapping[str, Any]) -> str:
    """Return the number of wrong kernels that each rule accepts."""
    total = report["bugs"]
    rows = [
        [each["harness"], each["inputs"], each["tolerance"], f"{len(each['passed'])} of {total}"]
        for each in report["rules"]
    ]
    return markdown_table(["harness", "inputs", "accepts", "pass"], rows, numbers=False) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Count, save and print."""
    parser = options(
        "harnesses", "Count wrong kernels that the rules of harnesses accept.", output=FILES[0]
    )
    arguments = parser.parse_args(argv)
    subjects = bugs()
    rules = [
        {
            "harness": rule.harness,
            "inputs": rule.inputs,
            "tolerance": rule.tolerance,
            "passed": [name for name, subject in subjects.items() if passes(rule, subject)],
        }
        for rule in RULES
    ]
    facts = machine(packages=("numpy",))
    report = {"machine": facts, "shape": [ROWS, SIZE], "bugs": len(subjects), "rules": rules}
    publish(report, arguments.output, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
