"""Pictures are the same for the same data, and of the kind that their names say."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from truenorm.tools.picture import save


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("SVG", b"<?xml")])
def test_kinds_of_file(tmp_path: Path, ending: str, start: bytes) -> None:
    files = [tmp_path / f"{name}.{ending}" for name in ("first", "second")]
    for file in files:
        figure = Figure()
        figure.add_subplot().plot([1, 2], label="a")
        figure.legend()
        save(figure, file)
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(start)
    assert first == second
    assert ending == "png" or b">a</text>" in first
