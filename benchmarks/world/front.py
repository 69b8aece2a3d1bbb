"""``python -m benchmarks.world.front``: fill the table of README.md; nothing is measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common import RESULTS, ROOT, fill_page, markdown_table, read_results
from benchmarks.world.page import FILES, error, grades_of

README = ROOT / "README.md"
SHAPES = ([2, 128, 1024], [8, 1024, 4096])
MEAN = "10000"
FRONT = {
    "truenorm correct": "truenorm correct",
    "truenorm fast": "truenorm fast",
    "truenorm textbook": "textbook NumPy",
    "truenorm textbook in float64, cast": "textbook in float64, then cast",
    "PyTorch layer_norm": "PyTorch",
}
"""Rows of the scoreboard, and the names of the same contestants in `benchmarks.peers`."""


def front_table(timings: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """Return the table of README.md: grades and errors of y, and times divided by PyTorch's."""
    taken = {
        (tuple(each["shape"]), each["direction"], each["contestant"]): each["time"]
        for each in timings["figures"]
    }

    def times(name: str, shape: Sequence[int]) -> str:
        both = [
            f"{taken[*place, name] / taken[*place, 'PyTorch']:.2f}"
            for place in ((tuple(shape), "forward"), (tuple(shape), "backward"))
            if (*place, name) in taken
        ]
        return "/".join([*both, "none", "none"][:2])

    by_name = {row["name"]: row for row in scores["rows"]}
    rows = []
    for key, name in FRONT.items():
        row = by_name[key]
        far = error(row, "float32", "mean", MEAN)
        cells = [times(name, shape) for shape in SHAPES]
        rows.append([name, grades_of(row, "float32")["y"], far, *cells])
    facts, noise = timings["machine"], "" if timings["quiet"] else ", not quiet"
    head = ["float32", "grade", "error"]
    head += ["time, " + "x".join(map(str, shape)) for shape in SHAPES]
    return (
        f"{markdown_table(head, rows)}\n\n"
        "[Grade](docs/reference/grades.md) of y, and its error in ulp where mean/std is 1e4 "
        f"(`python -m benchmarks.world`, {scores['machine']['date']}).\n"
        "Times of forward/backward, PyTorch's = 1 "
        f"(`python -m benchmarks.peers`, {facts['date']}, {facts['cpu']}, "
        f"{facts['cores']} cores{noise})."
    )


def main() -> None:
    """Fill the table."""
    timings, scores = read_results(RESULTS / "peers.json"), read_results(FILES[0])
    fill_page(README, {"front": front_table(timings, scores)})


if __name__ == "__main__":
    main()
