"""Reports for tests of pages and commands: one of `truenorm bench`, and the committed demo."""

from functools import cache
from pathlib import Path

from truenorm import demo
from truenorm.bench import NORMS, Report, Timing, figures_of

ROOT = Path(__file__).parents[1]
NAMES = ("truenorm correct", "truenorm fast", "textbook", "textbook in float64")


def bench_report(
    shapes: tuple[tuple[int, ...], ...] = ((2, 250),), dtype: str = "float32"
) -> Report:
    """Return times of 1 ms for the floor, and 2, 3, 4 and 5 ms for the others."""
    names = NAMES[:3] if dtype == "float64" else NAMES
    figures = []
    for shape in shapes:
        for direction, floor in (("forward", "copy"), ("backward", "triad")):
            timings = {floor: Timing(0.001, 0.001, 5)}
            for milliseconds, name in enumerate(names, 2):
                timings[name] = Timing(1.5, milliseconds * 1e-3, 3)
            figures += figures_of(NORMS["layer_norm"], shape, 4, direction, timings)
    machine = {"date": "2026-01-02", "cpu": "abacus", "cores": "4", "numpy": "2.0"}
    return Report("layer_norm", machine, "native", 2, dtype, 7, tuple(figures), ("A note.",))


@cache
def committed_demo() -> demo.Report:
    """Return the report that ``truenorm demo --json`` wrote."""
    file = ROOT / "benchmarks" / "results" / "demo.json"
    return demo.from_json(file.read_text(encoding="utf-8"))
