"""What runs of tests showed, of several processes together."""

from pathlib import Path

import numpy as np

from truenorm.verify.audit.replacing import Seen, read


def test_the_largest_difference_is_kept() -> None:
    seen = Seen()
    seen.differs("y", np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert seen.largest["y"] == [0.0, 2.0]
    seen.differs("y", np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    seen.differs("y", np.array([8.0]), np.array([8.25]))
    assert seen.largest["y"] == [0.5, 2.0]
    seen.differs("y", np.array([np.nan, np.nan]), np.array([np.nan, 3.0]))
    assert seen.largest["y"] == [np.inf, 3.0]
    seen.differs("dx", np.zeros(0), np.zeros(0))
    assert "dx" not in seen.largest


def test_processes_together(tmp_path: Path) -> None:
    one = Seen(True, 3, 1, ["float32"], {"y": [1.0, 2.0]})
    other = Seen(False, 2, 0, ["float32", "float16"], {"y": [np.inf, 4.0]}, "test_a", "no")
    one.had(["x"], ["y"])
    other.had(["x", "gamma"], ["y", "dx"])
    one.write(tmp_path / "1.json")
    other.write(tmp_path / "2.json")
    together = Seen(True, 5, 1, ["float32", "float16"], {"y": [np.inf, 4.0]}, "test_a", "no")
    together.had(["x", "gamma"], ["y", "dx"])
    assert read(tmp_path) == together
    assert read(tmp_path / "nothing") == Seen()
