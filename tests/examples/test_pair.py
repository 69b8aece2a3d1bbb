"""examples/pair.py, as its first line says to use it."""

from pathlib import Path

from cli.recording import run

PAIR = Path(__file__).resolve().parents[2] / "examples" / "pair.py"


def test_it_passes() -> None:
    done = run("gradcheck", PAIR)
    assert (done.exit_code, done.stdout[:5]) == (0, "PASS:"), done.output
    assert "  x: PASS" in done.stdout
