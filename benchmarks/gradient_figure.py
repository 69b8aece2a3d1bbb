"""``python -m benchmarks.gradient_figure``: draw docs/figures/taylor.svg.

It reads what ``python -m benchmarks.gradient_methods`` wrote, and needs Matplotlib (the dependency
group "figures").
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from truenorm.tools.picture import save

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "gradient_methods.json"
FIGURE = ROOT / "docs" / "figures" / "taylor.svg"
STYLES = {
    "truenorm": ("#1b6ca8", "o"),
    "textbook in float64": ("#c4622d", "s"),
    "dx off by 1e-6": ("#7a7a7a", "^"),
}


def main() -> int:
    """Draw the remainders of the three backward passes."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["taylor"]
    mpl.rcParams["font.size"] = 11
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for name, test in found.items():
        colour, marker = STYLES[name]
        relative = [r / h for r, h in zip(test["remainders"], test["steps"], strict=True)]
        label = f"{name}: level {test['level']:.0e}"
        axes.loglog(test["steps"], relative, color=colour, marker=marker, ms=5, label=label)
    steps = found["truenorm"]["steps"]
    first = found["truenorm"]["remainders"][0] / steps[0] ** 2
    axes.loglog(steps, [first * h for h in steps], "k:", lw=1, label="order 2")
    axes.set_xlabel("step h, in units of the spread of the inputs")
    axes.set_ylabel("R(h)/h, relative to the gradient")
    axes.set_title("Taylor remainder of layer norm, x = 1e8 + 1e-3 N(0,1), D = 16", fontsize=11)
    axes.invert_xaxis()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save(figure, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
