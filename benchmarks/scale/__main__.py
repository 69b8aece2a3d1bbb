"""``python -m benchmarks.scale``: exact gradients of norms over many ranks, by a model.

It prints the tables of docs/scale.md and draws docs/figures/scale.svg. The bytes of a column are
those of a real partial; all else is the model's. With ``--page`` the tables go into the page. It
needs Matplotlib and ml_dtypes (the dependency group "tests-bare").
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import sys
from pathlib import Path

import numpy as np

import truenorm as tn
from benchmarks.pages import filled, markdown_table
from benchmarks.scale.figure import draw
from benchmarks.scale.model import Model, Network

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
FIGURE = PAGE.parent / "figures" / "scale.svg"
TYPES = ("float32", "float16", "bfloat16")
HEAD = [
    "ranks",
    "float32, one bucket",
    "exact, one bucket",
    "float32, by layer",
    "exact, by layer",
]
SHAPE = (64, 1024)


def partial_of(dtype: str) -> tn.PartialGradients:
    """Return the partial of normal data."""
    if dtype == "bfloat16":
        import ml_dtypes  # noqa: F401  makes the type known to NumPy
    x, dy = np.random.default_rng(0).standard_normal((2, *SHAPE)).astype(np.dtype(dtype))
    gamma, beta = np.ones((2, SHAPE[1]), x.dtype)
    _, saved = tn.layer_norm_forward(x, gamma, beta, backend="reference")
    return tn.layer_norm_backward_partial(dy, saved, backend="reference")[1]


def bytes_of(partial: tn.PartialGradients) -> list[float]:
    """Return the bytes of a column: as words, in memory, and as bytes."""
    words = partial.to_words(partial.extent())
    return [size / SHAPE[1] for size in (words.nbytes, partial.nbytes, len(partial.tobytes()))]


def blocks(model: Model, network: Network) -> dict[str, str]:
    """Return the tables of the page."""
    sizes = [
        [dtype, "8", *(f"{size:.1f}" for size in bytes_of(partial_of(dtype)))] for dtype in TYPES
    ]
    head = ["type of x", "float32 sums", "words", "in memory", "as bytes"]
    return {
        "bytes": markdown_table(head, sizes),
        "times": markdown_table(HEAD, model.rows(network)),
        "share": _share(model, network),
    }


def _share(model: Model, network: Network, ranks: int = 1024) -> str:
    """Say what exactness adds to the all-reduce of all gradients."""
    whole = 1e3 * network.allreduce(ranks, 4 * model.parameters)
    times = model.times(ranks, network)
    more = times.exact - times.plain
    return (
        f"Such a model has {model.parameters / 1e9:.0f} billion parameters, a share of "
        f"{2 * model.columns * model.norms / model.parameters:.0e} in norms. All gradients in "
        f"float32 take {whole / 1e3:.1f} s over {ranks:,} ranks, exact norms "
        f"{more:.1f} ms more: {100 * more / whole:.2f} %."
    )


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description="Model all-reduces of gradients of norms."
    )
    described.add_argument("--columns", type=int, default=Model.columns, help="of a row")
    described.add_argument("--norms", type=int, default=Model.norms, help="of the model")
    described.add_argument("--latency", type=float, default=Network.latency, help="in seconds")
    described.add_argument("--bandwidth", type=float, default=Network.bandwidth, help="in bytes/s")
    described.add_argument("--adding", type=float, default=Network.adding, help="in bytes/s")
    described.add_argument("--page", action="store_true", help="put the tables into the page")
    described.add_argument("--figure", type=Path, default=FIGURE, help="the file to draw")
    return described.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Print the tables, and draw."""
    given = arguments_of(argv)
    network = Network(given.latency, given.bandwidth, given.adding)
    model = Model(
        given.columns, given.norms, exact_bytes=round(bytes_of(partial_of("float32"))[0])
    )
    made = blocks(model, network)
    print(f"{model}\n{network}\n")
    print("\n\n".join(made.values()))
    draw(model, network, given.figure)
    if given.page:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
