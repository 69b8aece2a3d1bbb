"""Guards that compare this checkout with a record; they are no benchmarks and not installed."""

import sys
from pathlib import Path

# The guards judge the kernels of the tests, which are not installed.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
