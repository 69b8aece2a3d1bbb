"""The picture: whole, for any number of shapes and contestants."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib import image, rc_context

from bench.made_up import report
from truenorm.bench import draw, write


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shapes", [((2, 250),), tuple((k, 1000) for k in range(1, 12))])
def test_a_png(tmp_path: Path, shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    file = tmp_path / "picture"
    with rc_context({"figure.facecolor": "black", "savefig.facecolor": "auto"}):
        write(report(shapes, dtype), file)
    pixels = image.imread(file, format="png")
    assert pixels.shape[1] >= 1600
    assert pixels[0, 0, :3].tolist() == [1, 1, 1]  # white, whatever is behind it


def test_what_is_on_it() -> None:
    made = draw(report(((2, 250), (4, 5))))
    forward, backward = made.axes
    assert [forward.get_title(), backward.get_title()] == ["forward", "backward"]
    assert forward.get_ylabel() == "time of a call, ms"
    assert forward.get_yscale() == "log"
    assert [tick.get_text() for tick in backward.get_xticklabels()] == ["2x250", "4x5"]
    assert [np.asarray(line.get_ydata()).tolist() for line in forward.get_lines()] == [
        [milliseconds, milliseconds] for milliseconds in (1, 2, 3, 4, 5)
    ]
    names = [text.get_text() for text in made.legends[0].get_texts()]
    assert names[:2] == ["copy | triad (the same bytes moved)", "truenorm correct"]
    assert len(names) == 5
    assert "abacus" in made.get_suptitle()
    assert "2026-01-02" in made.get_suptitle()
