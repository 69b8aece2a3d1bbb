"""examples/pair.py, as its first line says to use it."""

from pathlib import Path

from typer.testing import CliRunner

from truenorm.cli.app import app

PAIR = Path(__file__).resolve().parents[2] / "examples" / "pair.py"


def test_it_passes() -> None:
    done = CliRunner().invoke(app, ["gradcheck", str(PAIR)])
    assert (done.exit_code, done.stdout[:5]) == (0, "PASS:"), done.output
    assert "  x: PASS" in done.stdout
