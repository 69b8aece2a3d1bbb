"""``python -m benchmarks.front_page``: the table of README.md, speed and grade beside the peers.

It reads what ``python -m benchmarks.peers`` and ``python -m benchmarks.scoreboard`` wrote.
"""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.pages import filled, markdown_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "README.md"
SHAPE = [8, 1024, 4096]
CONTESTANTS = {  # as the scoreboard calls them, and as the timings do
    "truenorm": "truenorm correct, out=",
    "truenorm-fast": "truenorm fast, out=",
    "textbook": "textbook NumPy",
    "textbook64": "textbook in float64, then cast",
    "torch": "PyTorch",
    "jax": "JAX",
    "onnxruntime": "ONNX Runtime",
    "thinc": "thinc",
}
UNIT = CONTESTANTS["torch"]


def results(name: str) -> dict[str, Any]:
    """Read what a command wrote."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def front(timings: dict[str, Any], scores: dict[str, Any]) -> str:
    """Return the table with a line about where it comes from."""
    taken = {
        (figure["direction"], figure["contestant"]): figure["p50"]
        for figure in timings["figures"]
        if figure["shape"] == SHAPE
    }

    def time_of(direction: str, name: str) -> str:
        own, unit = taken.get((direction, name)), taken[direction, UNIT]
        return "none" if own is None else f"{own / unit:.2f}"

    rows = []
    for key, name in CONTESTANTS.items():
        grades = {
            grade["output"]: grade["grade"]
            for grade in scores["subjects"][key]["grades"]
            if grade["dtype"] == "float32"
        }
        rows.append(
            [
                name.removesuffix(", out="),
                *(grades.get(output, "none") for output in ("y", "dx", "dgamma")),
                *(time_of(direction, name) for direction in ("forward", "backward")),
            ]
        )
    machine, noise = timings["machine"], "" if timings["quiet"] else ", and it was not quiet"
    head = ["float32", "y", "dx", "dgamma", "forward", "backward"]
    return (
        f"{markdown_table(head, rows)}\n\n"
        f"Grades by `python -m benchmarks.scoreboard`, {scores['machine']['date']}. "
        f"Times of x of shape {tuple(SHAPE)}, PyTorch's = 1, by `python -m benchmarks.peers`, "
        f"{machine['date']}, on {machine['cpu']} with {machine['cores']} cores{noise}; truenorm "
        "and ONNX Runtime write to an array that exists, the others allocate."
    )


def main() -> int:
    """Fill the table in."""
    page = PAGE.read_text(encoding="utf-8")
    made = {"front": front(results("peers"), results("scoreboard"))}
    PAGE.write_text(filled(page, made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
