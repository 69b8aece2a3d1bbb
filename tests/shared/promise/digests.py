"""Compare results with the hashes of cached cases."""

from shared.promise.cached_cases import digest
from shared.promise.checking import BACKENDS, OUTPUTS, check, on_each_set, passes_for
from shared.promise.families import Case


def assert_digest(case: Case, output: str, expected: str) -> None:
    """Compare every backend with the cached hash; on failure, report the wrong elements."""
    columns = ... if case.columns is None else (..., list(case.columns))
    for backend in BACKENDS:
        for results in on_each_set(backend, passes_for, [output], case, backend).values():
            result = results[OUTPUTS.index(output)]
            assert result is not None
            if digest(result[columns]) != expected:
                _, wrong = check(case, [output], [backend])
                raise AssertionError(wrong or f"{case}: the cached hash is wrong")
