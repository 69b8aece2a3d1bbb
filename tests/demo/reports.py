"""The committed report, and the page that shows it."""

from functools import cache
from pathlib import Path

from truenorm.demo.demonstration import Report, from_json

ROOT = Path(__file__).parents[2]


@cache
def committed() -> Report:
    """Return what ``truenorm demo --json`` wrote."""
    file = ROOT / "benchmarks" / "results" / "demo.json"
    return from_json(file.read_text(encoding="utf-8"))
