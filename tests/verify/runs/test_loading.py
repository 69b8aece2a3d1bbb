"""The subject in a file that somebody named."""

from pathlib import Path

import pytest

from truenorm.verify.running.loading import NotThereError, load, split_target

HEAD = "import truenorm.verify as tv\n"


def test_loading(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_given.py").write_text("value = 5\n", encoding="utf-8")
    body = "from neighbour_of_given import value\nmine = tv.Subject(print, name=str(value))\n"
    path = tmp_path / "given.py"
    path.write_text(HEAD + body, encoding="utf-8")
    assert load(f"{path}:mine").name == "5"
    with pytest.raises(NotThereError, match=r"there is no file .*nothing\.py"):
        load("nothing.py")
    assert split_target(r"C:\folder\file.py")[1] == "subject"
    assert split_target("file.py:mine") == (Path("file.py"), "mine")
