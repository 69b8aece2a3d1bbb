"""The drawings of layers in docs/inside/design.md show every module of the import contracts."""

from itertools import chain

from benchmarks.common import FIGURES


def test_the_drawings_show_every_module() -> None:
    """If this fails: `python -m benchmarks.figures layers`."""
    from benchmarks.figures import CONTRACTS, layers_of  # imports Matplotlib

    for name, contracts in CONTRACTS.items():
        drawing = (FIGURES / f"{name}.svg").read_text(encoding="utf-8")
        for contract in contracts:
            for module in chain.from_iterable(layers_of(contract)):
                assert f">{module}</text>" in drawing, module
