"""``python -m benchmarks.stability_figure``: draw the figures of docs/stability.md and README.

It reads what ``truenorm demo --json > benchmarks/results/demo.json`` wrote, and needs Matplotlib
(the dependency group "figures").
"""

import sys
from pathlib import Path

from truenorm.demo.demonstration import from_json
from truenorm.demo.page import draw
from truenorm.tools.picture import save

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "demo.json"
FIGURES = ROOT / "docs" / "figures"


def main() -> int:
    """Draw y in float32 for the front page, and all outputs of each type."""
    report = from_json(RESULTS.read_text(encoding="utf-8"))
    FIGURES.mkdir(exist_ok=True)
    for sweep in report.sweeps:
        save(draw([sweep]), FIGURES / f"stability-{sweep.dtype}.svg")
        if sweep.dtype == "float32":
            save(draw([sweep], ["y"]), FIGURES / "error-against-offset.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
