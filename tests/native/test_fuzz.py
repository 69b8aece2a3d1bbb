"""Random calls of the C core end as documented, and right where they are compared."""

import pytest

from promise.checking import BACKENDS

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from native.hostile import Fuzzer


@pytest.mark.filterwarnings("ignore")  # of NumPy, on a writable buffer of a broadcast array
@pytest.mark.parametrize("calls", [30_000, pytest.param(10**7, marks=pytest.mark.slow)])
def test_hostile_arguments(calls: int) -> None:
    """A call that is not ordinary is declined or refused; a crash would end the process."""
    fuzzer = Fuzzer(0, compared=min(0.1, 3 * 10**4 / calls))
    fuzzer.run(calls)
    assert fuzzer.counts["compared"] >= 50
    for name in ("forward", "backward"):
        assert fuzzer.counts[f"{name} True"] > calls // 50
        assert fuzzer.counts[f"{name} False"] > calls // 50
    names = ("forward_rows", "backward_rows", "statistics", "merge", "add_terms", "add_numbers")
    for name in names:
        assert fuzzer.counts[f"{name} returned"] > calls // 500
        assert fuzzer.counts[f"{name} ValueError"] > calls // 500
    assert fuzzer.counts["backward_partial True"] > calls // 1000
    assert fuzzer.counts["backward_partial False"] > calls // 500
