"""Load the program that runs workflows without GitHub."""

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def load_follow_workflow() -> Any:
    """Return the module `.ci/follow_workflow.py`, which is in no package."""
    path = ROOT / ".ci" / "follow_workflow.py"
    spec = importlib.util.spec_from_file_location("follow_workflow", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
