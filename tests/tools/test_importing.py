"""The tools come with the bare install, and cost nothing to import."""

import subprocess
import sys


def test_they_load_neither_numpy_nor_what_draws() -> None:
    names = ("machine", "progress", "strict_json", "text")
    program = f"import sys; from truenorm.tools import {', '.join(names)}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "truenorm.tools.text" in loaded
    assert not {"numpy", "rich", "matplotlib"}.intersection(loaded)
