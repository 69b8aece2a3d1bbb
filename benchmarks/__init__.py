"""Commands that make the published figures; README.md lists them and says how to read them."""

import sys
from pathlib import Path

# Benchmarks use the families and hard cases of the tests, which are not installed.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
