"""The drawing of the layers in docs/design shows every module of the import contracts."""

from itertools import chain

from benchmarks.common import FIGURES


def test_the_drawing_shows_every_module() -> None:
    """If this fails: `python -m benchmarks.figures layers`."""
    from benchmarks.figures import CONTRACTS, layers_of  # imports Matplotlib

    drawing = (FIGURES / "layers.svg").read_text(encoding="utf-8")
    for contract in CONTRACTS:
        for module in chain.from_iterable(layers_of(contract)):
            assert f">{module}</text>" in drawing, module
