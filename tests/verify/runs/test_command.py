"""Programs as subjects: the files that they are given, and those that they answer with."""

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.records import AGAIN, INTERLEAVED, PLAIN, REVERSED, ROWS, Call
from truenorm.verify.subject import Subject
from verify.runs.programs import CASE, run, shell

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")

# Answers with what no kernel would: y = x, dx = dy, dgamma = gamma and dbeta = beta.
ECHO = """
import sys, pathlib
folder = pathlib.Path(sys.argv[-1])
lines = (folder / "manifest.txt").read_text().splitlines()
assert lines[0] == "truenorm-vectors 1"
name, dtype, rows, d, eps = lines[1].split(" ")
whole, size = int(rows) * int(d) * 4, int(d) * 4
data = (folder / f"{name}.in").read_bytes()
x, gamma, beta, dy = data[:whole], data[whole:-whole-size], data[whole+size:-whole], data[-whole:]
assert len(x + gamma + beta + dy) == len(data)
(folder / f"{name}.out").write_bytes(x + dy + gamma + beta)
"""


@pytest.mark.parametrize("kind", [PLAIN, AGAIN, INTERLEAVED])
def test_results_are_read_back(kind: str) -> None:
    record = run(sys.executable, "-c", ECHO, call=Call(kind))
    assert record.failure == ""
    assert record.damaged == ()
    assert (record.case, record.call) == ("plain", Call(kind))
    assert record.seconds > 0
    given = {"y": CASE.x, "dx": CASE.dy, "dgamma": CASE.gamma, "dbeta": CASE.beta}
    assert list(record.results) == list(given)
    for output, array in given.items():
        np.testing.assert_array_equal(record.results[output], array, strict=True)


def test_rows_alone_or_none() -> None:
    record = run(sys.executable, "-c", ECHO, call=Call(ROWS, 2, 5))
    np.testing.assert_array_equal(record.results["y"], CASE.x[2:5], strict=True)
    np.testing.assert_array_equal(record.results["dx"], CASE.dy[2:5], strict=True)
    record = run(sys.executable, "-c", ECHO, call=Call(REVERSED))
    np.testing.assert_array_equal(record.results["y"], CASE.x[::-1], strict=True)
    record = run(sys.executable, "-c", ECHO, call=Call("idle below"))
    np.testing.assert_array_equal(
        record.results["dx"], np.concatenate([CASE.dy, 0 * CASE.dy]), strict=True
    )
    record = run(sys.executable, "-c", ECHO, call=Call("strided gradients"))
    assert record.failure.startswith("a command gets rows")
    none = CommandRunner(Subject(command=["sh", "-c", 'head -c 32 /dev/zero > "$0/plain.out"']))
    record = none.run(CASE.part(slice(0, 0)), Call())
    assert record.failure == ""
    np.testing.assert_array_equal(record.results["y"], CASE.x[:0], strict=True)


def test_a_program_without_backward() -> None:
    record = shell('head -c 96 "$0/plain.in" > "$0/plain.out"')
    assert record.failure == ""
    assert list(record.results) == ["y"]
    np.testing.assert_array_equal(record.results["y"], CASE.x, strict=True)


@pytest.mark.parametrize("size", [0, 12, 223, 225, 2**40])
def test_answers_of_the_wrong_size(size: int) -> None:
    """The last is a file with a hole: to read it would take a terabyte."""
    record = shell(f'truncate -s {size} "$0/plain.out"')
    assert record.failure == f"wrote {size} bytes to plain.out, expected 224"
    assert record.results == {}


@pytest.mark.parametrize(
    "script", ["true", 'mkfifo "$0/plain.out"', 'ln -s /dev/zero "$0/plain.out"']
)
def test_answers_that_are_no_files(script: str) -> None:
    """A pipe would make us wait for ever, and a device would never end."""
    assert shell(script).failure == "wrote no file plain.out"


def test_the_folder_is_private_and_where_it_runs(tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = f"""
import os, sys
status = os.stat(sys.argv[-1])
seen = status.st_mode, status.st_uid, os.path.samefile(os.getcwd(), sys.argv[-1])
open({str(told)!r}, "w").write(repr((seen, sorted(os.listdir()), sys.stdin.read())))
"""
    run(sys.executable, "-c", program)
    seen = (stat.S_IFDIR | 0o700, os.getuid(), True)
    assert told.read_text() == repr((seen, ["manifest.txt", "plain.in"], ""))


@pytest.mark.parametrize(
    ("script", "damaged"),
    [
        *(
            (f"printf x | dd of=plain.in bs=1 conv=notrunc status=none seek={place}", (name,))
            for name, place in {"x": 0, "gamma": 96, "beta": 112, "dy": 220}.items()
        ),
        ("rm plain.in", ("x", "gamma", "beta", "dy")),
        ("echo >> plain.in", ("x", "gamma", "beta", "dy")),
    ],
)
def test_damage_to_inputs_is_seen(script: str, damaged: tuple[str, ...]) -> None:
    record = shell(f"head -c 224 /dev/zero > plain.out; {script}")
    assert record.failure == ""
    assert record.damaged == damaged


def test_what_cannot_be_a_program_or_its_files_is_refused() -> None:
    runner = CommandRunner(Subject(command=[sys.executable, "-c", ECHO]))
    record = runner.run(CASE.with_inputs(gamma=None), Call())
    assert "rows, gamma and beta" in record.failure
    with pytest.raises(ValueError, match="lab has no command"):
        CommandRunner(Subject(forward=lambda x, *_: x, name="lab"))
