"""The tool that compares truenorm's bits with exact answers on random cases."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn
import truenorm.verify as tv
from tools import own_bits


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take two small cases of each operation and type."""
    drawn = own_bits.drawn_cases

    def few(*arguments: Any) -> list[tv.Case]:
        return [each for each in drawn(*arguments) if each.x.size < 500][:2]

    monkeypatch.setattr(own_bits, "drawn_cases", few)


def test_right_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bits.json"
    assert own_bits.main(["--seed", "5", "--seeds", "2", "--output", str(file)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads(file.read_text(encoding="utf-8"))
    assert (report["seeds"], report["wrong"]) == ([5, 6], 0)
    assert report["cases"] == 2 * 2 * 2 * 4 * len(report["backends"])


def test_one_wrong_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = tn.rms_norm_backward

    def wrong(*arguments: Any) -> Any:
        gradients = backward(*arguments)
        gradients.dx.flat[0] = np.nextafter(gradients.dx.flat[0], gradients.dx.dtype.type(np.inf))
        return gradients

    monkeypatch.setattr(tn, "rms_norm_backward", wrong)
    report = own_bits.run(range(3, 4), ["reference"])
    assert report["wrong"] == 2 * 4
    assert {(each["operation"], each["output"]) for each in report["first"]} == {
        ("rms_norm", "dx")
    }
    assert report["first"][0]["case"].endswith("-3")


def test_drawn_cases_differ_by_seed() -> None:
    first, second = (
        {each.name for each in own_bits.drawn_cases(tv.RMS_NORM, "float32", seed)}
        for seed in (1, 2)
    )
    assert first
    assert not first & second


def test_seed_0_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        own_bits.main(["--seed", "0"])
    assert "--seed and --seeds must be 1 or above, got 0 and 1" in capsys.readouterr().err
