"""The help of each command, for the page of commands."""

from pathlib import Path

from typer.testing import CliRunner

from benchmarks.common import ROOT
from truenorm.cli.app import COMMANDS, app

FILES: tuple[Path, ...] = ()
"""No results: the help is that of the package."""
CASES = (
    *(ROOT / "src" / "truenorm" / "cli").glob("*.py"),
    ROOT / "src" / "truenorm" / "tools" / "command_texts.py",
)
"""The files that have the texts."""


def page() -> str:
    """Return what each command prints for ``--help``, as Markdown."""
    sections = []
    for name in COMMANDS:
        done = CliRunner().invoke(
            app, [name, "--help"], prog_name="truenorm", env={"COLUMNS": "80"}
        )
        if done.exit_code:
            raise RuntimeError(f"truenorm {name} --help failed: {done.output}")
        sections.append(f"### Options of truenorm {name}\n\n```text\n{done.output.strip()}\n```")
    return "\n\n".join(sections)
