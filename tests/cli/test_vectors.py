"""``truenorm vectors``: what it asks for, and how it refuses."""

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from cli.recording import recorded, run
from truenorm.cli import commands as command
from truenorm.verify import suite
from truenorm.verify.operations import layer_norm_case


def test_cases_of_the_level_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, command, "write_vectors", {"cases": 2, "folder": "f"})
    monkeypatch.setattr(
        suite, "cases", lambda *asked, operation: [f"{asked[0]} {asked[1]} {operation.name}"]
    )
    assert run("vectors", "f").stdout == "cases: 2\nfolder: f\n"
    types = ("--dtype", "float16", "--dtype", "float64")
    done = run("vectors", "f", "--operation", "rms_norm", "--level", "full", *types, "--json")
    assert json.loads(done.stdout) == {"cases": 2, "folder": "f"}
    assert [given for given, _ in asked] == [
        (Path("f"), ["float32 quick layer_norm"], None),
        (Path("f"), ["float16 full rms_norm", "float64 full rms_norm"], None),
    ]


@pytest.mark.parametrize("refusal", [ValueError("no"), PermissionError("no")])
def test_refusals_are_exit_code_2(monkeypatch: pytest.MonkeyPatch, refusal: Exception) -> None:
    recorded(monkeypatch, command, "write_vectors", refusal)
    monkeypatch.setattr(suite, "cases", lambda *_, **__: [])
    done = run("vectors", "f")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", "truenorm: no\n")


def test_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    """The real writer this time."""
    (tmp_path / "mine.txt").touch()
    done = run("vectors", tmp_path)
    assert done.exit_code == 2
    assert "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_real_writer_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ones = np.ones((1, 2), np.float32)
    small = layer_norm_case("ones", (ones, ones[0], ones[0], ones), eps=1.0)
    monkeypatch.setattr(suite, "cases", lambda *_, **__: [small])
    told: list[object] = []
    bar = nullcontext(lambda *step: told.append(step))
    monkeypatch.setattr(command, "progress_bar", lambda _: bar)
    assert run("vectors", tmp_path / "new").stdout.startswith("cases: 1\n")
    assert told == [(0, 1, "ones")]
