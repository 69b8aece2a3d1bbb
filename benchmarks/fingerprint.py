"""``python -m benchmarks.fingerprint``: print digests of the bits of all results.

A change that must not change bits keeps every line: run it with --check before and after. Lines of
correct mode are equal on every machine and for every backend, those of fast mode on machines and
with versions like the recorded ones.
"""
# A command prints its result.

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import truenorm as tn
import truenorm.verify as tv
from benchmarks.common import RESULTS, heading, machine
from shared.promise.checking import BACKENDS
from shared.promise.families import (
    DTYPES,
    DY_KINDS,
    EPSILONS,
    PARAMETER_KINDS,
    X_FAMILIES,
    Case,
    cases,
    make_dy,
    make_parameter,
    make_x,
    non_finite_cases,
)
from shared.promise.hard_cases import OUTPUTS, RMS_OUTPUTS, hard_cases
from truenorm.tools.progress import status_line
from truenorm.verify.oracle import expected

RECORD = RESULTS / "fingerprint.txt"
ROUNDINGS = ("correct", "fast")
SHAPES = ((1, 1), (9, 2), (7, 67), (2, 513), (40, 128))
OPERATIONS = {"layer_norm": (tv.LAYER_NORM, OUTPUTS), "rms_norm": (tv.RMS_NORM, RMS_OUTPUTS)}
Arguments = tuple[Any, Any, Any, Any, float]
"""x, gamma, beta, dy and eps; RMSNorm takes no beta."""


def suites(
    dtype: np.dtype[Any], norm: str = "layer_norm"
) -> dict[str, Callable[[], Iterator[Arguments]]]:
    """Return the inputs of a type by name: every family, mixtures, and the judge's cases."""
    operation, outputs = OPERATIONS[norm]
    named: dict[str, Callable[[], Iterator[Arguments]]] = {
        f"family {name}": lambda name=name: _family(name, dtype)  # type: ignore[misc]
        for name in X_FAMILIES
    }
    named["families mixed"] = lambda: map(_arguments, cases(dtype, 31_000))
    for output in outputs:
        named[f"hard {output}"] = lambda output=output: map(  # type: ignore[misc]
            _arguments, hard_cases(output, dtype, 1000, centred=norm == "layer_norm")
        )
    named["not finite"] = lambda: map(
        _arguments, non_finite_cases(dtype, 60, (1, 2, 7, 9), (1, 2, 5, 17, 129))
    )
    named["judge quick"] = lambda: (
        (
            case.in_layout(case.x),
            case.gamma,
            case.beta if norm == "layer_norm" else None,
            case.in_layout(case.dy),
            case.eps,
        )
        for case in tv.cases(dtype.name, "quick", operation=operation)
    )
    return named


def _arguments(case: Case) -> Arguments:
    return case.x, case.gamma, case.beta, case.dy, case.eps


def _family(name: str, dtype: np.dtype[Any]) -> Iterator[Arguments]:
    """Yield a family in every shape with every eps; kinds of dy and of parameters alternate."""
    kinds, parameters = list(DY_KINDS), list(PARAMETER_KINDS)
    for k, (rows, size) in enumerate(SHAPES):
        x = make_x(name, dtype, rows, size, k)
        for j, eps in enumerate(EPSILONS):
            other = DTYPES[(k + j) % 4] if j % 2 else dtype
            yield (
                x,
                make_parameter(parameters[(k + j) % 5], other, size, j),
                make_parameter(parameters[j % 5], other, size, j + 1),
                make_dy(kinds[(k + j) % len(kinds)], x, j),
                eps,
            )


def fingerprint(
    backends: Sequence[str] = BACKENDS, dtypes: Sequence[np.dtype[Any]] = DTYPES
) -> Iterator[str]:
    """Yield a digest and its name for each suite; names without a norm are of layer norm."""
    for dtype in dtypes:
        for norm in OPERATIONS:
            kind = f"{dtype}" if norm == "layer_norm" else f"{dtype} {norm}"
            for name, suite in suites(dtype, norm).items():
                for backend in backends:
                    for rounding in ROUNDINGS:
                        status_line(f"{kind} {name}: {backend}, {rounding}")
                        what = f"{backend} {rounding} {kind} {name}"
                        forward, backward = _digests(suite(), norm, backend, rounding)
                        yield f"{forward}  {what}: forward"
                        yield f"{backward}  {what}: backward"
            status_line(f"{kind}: exact answers")
            yield f"{_answers(dtype, norm)}  exact {kind} judge quick"
    status_line()


def _digests(
    suite: Iterator[Arguments], norm: str, backend: str, rounding: Any
) -> tuple[str, str]:
    """Return the digests of y and of the gradients over all cases."""
    forward, backward = hashlib.sha256(), hashlib.sha256()
    how: dict[str, Any] = {"rounding": rounding, "backend": backend}
    for x, gamma, beta, dy, eps in suite:
        if norm == "layer_norm":
            y, saved = tn.layer_norm_forward(x, gamma, beta, eps=eps, **how)
            gradients: Any = tn.layer_norm_backward(dy, saved, backend=backend)
        else:
            y, saved = tn.rms_norm_forward(x, gamma, eps=eps, **how)
            gradients = tn.rms_norm_backward(dy, saved, backend=backend)
        forward.update(_bytes(y))
        for gradient in gradients:
            backward.update(_bytes(gradient))
    return forward.hexdigest()[:16], backward.hexdigest()[:16]


def _answers(dtype: np.dtype[Any], norm: str) -> str:
    """Return the digest of the judge's answers."""
    operation, outputs = OPERATIONS[norm]
    digest = hashlib.sha256()
    for case in tv.cases(dtype.name, "quick", operation=operation):
        answers = expected(case).values
        for output in outputs:
            digest.update(_bytes(answers[output]))
    return digest.hexdigest()[:16]


def _bytes(result: Any) -> bytes:
    return b"none" if result is None else np.ascontiguousarray(result).tobytes()


def _recorded() -> list[str]:
    text = RECORD.read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


def _compare_backends(backend: str, recorded: str, dtypes: Sequence[np.dtype[Any]]) -> int:
    """Compare a backend in correct mode with the record of another."""
    expected_lines = set(_recorded())
    compared, changed = 0, 0
    for line in fingerprint([backend], dtypes):
        digest, _, what = line.partition("  ")
        if what.startswith(f"{backend} correct "):
            compared += 1
            if f"{digest}  {what.replace(backend, recorded, 1)}" not in expected_lines:
                changed += 1
                print(f"differs  {line}", file=sys.stderr)
    print(f"{compared} lines of {backend}, {changed} differ from those of {recorded}")
    return 1 if changed or not compared else 0


def main(argv: list[str] | None = None) -> int:
    """Print the lines; record them, or compare them with the record."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fingerprint",
        description="Print a digest of the bits of every family, type, norm, rounding, pass and "
        "backend, and of the judge's cases and answers.",
    )
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    parser.add_argument("--check", action="store_true", help=f"compare with {RECORD.name}")
    parser.add_argument(
        "--like",
        nargs=2,
        metavar=("BACKEND", "RECORDED"),
        help="compare the lines of correct mode of one backend with those recorded for another",
    )
    parser.add_argument("--dtype", nargs="+", default=[each.name for each in DTYPES])
    arguments = parser.parse_args(argv)
    dtypes = [each for each in DTYPES if each.name in arguments.dtype]
    if arguments.like:
        backend, recorded = arguments.like
        return _compare_backends(backend, recorded, dtypes)
    where = machine(packages=("numpy", "ml_dtypes"))
    lines = []
    for line in fingerprint(dtypes=dtypes):
        lines.append(line)
        print(line, flush=True)
    if arguments.record:
        text = "\n".join([*(f"# {each}" for each in heading(where).splitlines()), *lines])
        RECORD.write_text(text + "\n", encoding="utf-8")
    if arguments.check:
        recorded = _recorded()
        changed = sorted(set(recorded) ^ set(lines), key=lambda line: line[18:])
        for line in changed:
            print(f"{'recorded' if line in recorded else 'now':9s}{line}", file=sys.stderr)
        print(f"{len(lines)} lines, {len(changed)} differences", file=sys.stderr)
        return 1 if changed else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
