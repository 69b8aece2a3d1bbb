"""The faults that the fast tests must find fit the sources."""

from benchmarks.common import ROOT
from benchmarks.faults import faults


def test_each_fault_fits() -> None:
    """If this fails: adapt the old text of the fault in benchmarks/faults.toml."""
    every = faults()
    assert len(every) >= 30
    for fault in every:
        assert fault.replaced((ROOT / fault.file).read_text(encoding="utf-8")), fault.name
