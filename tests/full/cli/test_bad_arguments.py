"""Bad arguments of every command: exit code 2, and a short message instead of a traceback."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm
from shared.cli.recording import record, run_main
from truenorm import cli, doctor
from truenorm.gradient_check import __main__ as gradient_check
from truenorm.tools.command_line import run_command
from truenorm.verify.running import process
from truenorm.verify.running.loading import load_with_spec

MOST_LINES = 12
"""Of a message: the last calls of the user's code take the most."""

SOURCES = {
    "subject.py": """
import truenorm.verify as tv
def forward(x, gamma, beta, eps):
    return x
def rms(x, gamma, eps):
    return x
def pair_of(*arguments):
    return arguments
subject = tv.Subject(forward, name="mine", dtypes=["float32"])
""",
    "empty.py": "",
    "syntax.py": "def f(:\n",
    "raises.py": "raise RuntimeError('boom \\x1b[2J')\n",
    "exits.py": "import sys\nsys.exit(0)\n",
    "odd.py": "class Odd(BaseException): pass\nraise Odd('odd')\n",
    "imports.py": "import no_such_package\n",
    "claims.py": "import truenorm.verify as tv\nsubject = tv.Subject(print, dtypes=['f4'])\n",
    "sleeps.py": "import time\ntime.sleep(60)\n",
    "pair.py": """
import numpy as np
def backward(dy, x):
    return dy * (1 - np.tanh(x) ** 2)
pair = np.tanh, backward, [np.ones(3)]
exits = lambda x: exit(3), backward, [np.ones(3)]
endless = lambda x: endless[0](x), backward, [np.ones(3)]
""",
    "text.txt": "hello",
    "cut.json": "{",
    "deep.json": "[" * 100_000,
    "long.json": "9" * 5000,
    "other.json": '{"schema": "truenorm/report-1"}',
}
X = np.ones((2, 4), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad")
    for name, text in SOURCES.items():
        (path / name).write_text(text, encoding="utf-8")
    (path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (path / "null.py").write_bytes(b"x = '\0'\n")
    np.savez(path / "x.npz", x=X)
    (path / "cut.npz").write_bytes((path / "x.npz").read_bytes()[:100])
    for name in ("folder.py", "folder.npz", "full"):
        (path / name).mkdir()
    (path / "full" / "file").touch()
    return path


def files_of(folder: Path) -> list[Path]:
    """Return all files but the byte code that executing one of them leaves."""
    return sorted(path for path in folder.rglob("*.*") if path.suffix != ".pyc")


@pytest.fixture
def stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Run a command in this process and in the folder, and return its message."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PYTHONPATH", str(Path(truenorm.__file__).parents[1]))  # not relative
    monkeypatch.setattr(sys, "path", list(sys.path))  # executing a file changes it
    before = files_of(folder)

    def run(main: Callable[[], object], *words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["truenorm", *words])
        with pytest.raises(SystemExit) as ending:
            main()
        output, message = capsys.readouterr()
        assert (ending.value.code, output) == (2, ""), message
        assert "Traceback" not in message
        assert "bug of truenorm" not in message
        assert "\x1b" not in message
        assert 1 <= len(message.splitlines()) <= MOST_LINES, message
        assert files_of(folder) == before
        return " ".join(message.split())

    yield run
    for name in SOURCES:
        sys.modules.pop(Path(name).stem, None)


TARGETS = [
    ("''", "is a folder; give file.py or file.py:name"),
    (".", "is a folder; give file.py or file.py:name"), ("nothing.py", "there is no file"),
    ("folder.py", "folder.py is a folder; give file.py or file.py:name"),
    ("text.txt", "text.txt is no Python file; give file.py or file.py:name"),
    ("syntax.py", "SyntaxError: invalid syntax"), ("latin.py", "SyntaxError"),
    ("null.py", "null bytes"), ("raises.py", r"RuntimeError: boom \x1b[2J"),
    ("exits.py", "SystemExit: 0"), ("odd.py", "Odd: odd"),
    ("imports.py", "No module named 'no_such_package'"),
    ("'a\0b.py'", "must not have NUL characters, got 'a\\x00b.py'"),
    ("'a\x1b[2J.py'", r"a\x1b[2J.py"),
]  # fmt: skip
"""A file that cannot be executed, for verify and gradcheck."""


@pytest.mark.parametrize("command", ["verify", "gradcheck"])
@pytest.mark.parametrize(("target", "expected"), TARGETS)
def test_target(stopped: Callable[..., str], command: str, target: str, expected: str) -> None:
    assert expected in stopped(cli.main, command, *shlex.split(target))


SUBJECTS = [
    ("verify", "Missing argument 'TARGET'"),
    ("verify empty.py", "it defines none: write a subject"),
    ("verify claims.py", "dtypes must be a list of float16, bfloat16, float32, float64"),
    ("verify subject.py:nothing", "has no subject or function 'nothing'; it has forward"),
    ("verify subject.py:", "there is no file"),
    ("verify subject.py:rms", "is a function: give --operation rms_norm"),
    ("verify torch:x", "give --operation rms_norm"),
    ("verify torch:x --operation rms_norm", "torch:x is no path such as torch:package"),
    ("verify torch:no.such --operation rms_norm", "there is no module 'no'"),
    ("verify sleeps.py --start-seconds 0.2", "no answer within 0.2 s; --start-seconds"),
    ("verify subject.py --operation nonsense", "operation must be one of layer_norm"),
    ("verify subject.py --operation rmsnorm", "'rmsnorm': did you mean rms_norm?"),
    ("compare subject.py", "Missing argument 'SECOND'"),
    ("compare subject.py nothing.py", "there is no file"),
]


@pytest.mark.parametrize(("words", "expected"), SUBJECTS)
def test_subject(stopped: Callable[..., str], words: str, expected: str) -> None:
    assert expected in stopped(cli.main, *shlex.split(words))


OPTIONS = [
    ("--operation ''", "--operation must be a name such as rms_norm, got ''; leave it out"),
    ("--operation ,", "operation must be a name such as add_rms_norm"),
    ("--operation rms_norm,gain", "gain must be one of plain, zero-centred; got ''"),
    ("--operation rms_norm,parameters=int8", "parameters must be one of float16"),
    ("--operation rms_norm,sum=unrounded", "needs add_rms_norm"),
    ("--recipe nonsense", "recipe must be one of late, early"),
    ("--largest -1", "largest must be above zero; got -1"),
    ("--largest x", "valid number, unable to parse string as a number; got 'x'"),
    ("--kappa 0", "kappa must be above zero; got 0"),
    ("--shape 0x4", "shape must be like 4096x5120 or 8x1024x4096; got '0x4'"),
    (f"--shape {'9' * 5000}x4", "shape must be like"),
    ("--shape 999999999999x999999999999", "shape must have at most"),
    ("--shape 9999999x9999999", "not enough memory: Unable to allocate"),
    ("--dtype int8", "'int8' is not one of 'float16'"),
    ("--dtype float64", "mine claims float32, not float64"),
    ("--level medium", "'medium' is not one of 'quick', 'full'"),
    ("--require best", "'best' is not one of 'wrong'"),
    ("--start-seconds -1", "--start-seconds must be a positive number, got -1"),
    ("--jobs 0", "greater than or equal to 1; got '0'"),
    ("--nonsense", "No such option: --nonsense"),
    ("another.py", "unexpected extra argument(s) (another.py)"),
    ("--data nothing.npz", "cannot read nothing.npz: No such file or directory"),
    ("--data folder.npz", "cannot read folder.npz"),
    ("--data text.txt", "data must end in .npz or .safetensors; got text.txt"),
    ("--data cut.npz", "or it is cut: write it with np.savez"),
    ("--baseline nothing.json", "there is no baseline nothing.json; write it with"),
    ("--baseline full", "the baseline full cannot be read"),
    ("--baseline cut.json", "the baseline cut.json cannot be read"),
    ("--baseline deep.json", "the baseline deep.json cannot be read"),
    ("--baseline long.json", "long.json"),
    ("--baseline other.json", "is not a baseline that this version can read"),
    ("--update-baseline", "--update-baseline needs --baseline FILE"),
    ("--update-baseline --baseline no/a.json", "give --baseline a file in a folder that exists"),
    ("--html full", "give --html a file in a folder that exists"),
    ("--html no/a.html", "give --html a file in a folder that exists"),
    ("--html subject.py", "give --html a file that ends in .html"),
    ("--html a.html --baseline ./a.html --update-baseline", "must be two files"),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS)
def test_options_of_verify(
    stopped: Callable[..., str], monkeypatch: pytest.MonkeyPatch, options: str, expected: str
) -> None:
    """Load the subject in this process: starting another one takes a second."""

    class Loaded:
        def __init__(self, target: str, *, operation: str, **_: object) -> None:
            self.subject, self.spec = load_with_spec(target, operation)

        def __enter__(self) -> "Loaded":
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(process, "SubjectProcess", Loaded)
    assert expected in stopped(cli.main, "verify", "subject.py", *shlex.split(options))


OTHERS = [
    ("nonsense", "No such command 'nonsense'"),
    ("''", "No such command ''"),
    ("--nonsense", "No such option: --nonsense"),
    ("record", "Missing argument 'FOLDER'"),
    ("record full", "full is not empty: name a new folder"),
    ("record new --dtype int8", "'int8' is not one of"),
    ("record new --also nonsense", "also must be a list of"),
    ("record new --seed -1", "--seed must be a number or fresh, got '-1'"),
    ("judge", "Missing argument 'FOLDER'"),
    ("judge full", "full has no manifest.json: give a folder that truenorm record wrote"),
    ("score", "give either a TARGET or --serve"),
    ("score a.py:norm --serve", "give either a TARGET or --serve"),
    ("score a.py:norm --seed -1", "--seed must be a number or fresh, got '-1'"),
    ("score a.py:norm --cases 3", "cases must be 40 or above, got 3"),
    ("score a.py:norm --norms some", "'some' is not one of"),
    ("score a.py:norm --python nothing", "cannot start nothing: No such file"),
    ("vectors", "Missing argument 'DIR'"),
    ("vectors full", "full is not empty: name a new folder"),
    ("vectors text.txt", "text.txt is a file: name a new folder"),
    ("vectors text.txt/new", "cannot write text.txt/new: Not a directory"),
    ("vectors new --operation ''", "operation must be a name such as"),
    ("vectors new --dtype int8", "'int8' is not one of"),
    ("vectors new --level medium", "'medium' is not one of"),
    ("gradcheck", "Missing argument 'TARGET'"),
    ("gradcheck empty.py", "write pair = forward, backward, [input, ...]"),
    ("gradcheck pair.py:no", "has no pair named 'no'; it has pair"),
    ("gradcheck pair.py:exits", "SystemExit: 3"),
    ("gradcheck pair.py:endless", "RecursionError"),
    ("gradcheck pair.py --method magic", "'magic' is not one of 'auto'"),
    ("gradcheck pair.py --tol -1", "tol must be a positive number, got -1"),
    ("gradcheck pair.py --seed -1", "seed must be at least 0, got -1"),
    ("doctor full", "unexpected extra argument(s) (full)"),
    ("doctor --fast", "No such option: --fast"),
]


@pytest.mark.parametrize(("words", "expected"), OTHERS)
def test_other_commands(stopped: Callable[..., str], words: str, expected: str) -> None:
    assert expected in stopped(cli.main, *shlex.split(words))


WITHOUT_TYPER = [
    (doctor, "--fast", "unrecognized arguments: --fast"),
    (gradient_check, "syntax.py", "SyntaxError"),
    (gradient_check, "pair.py --seed -1", "seed must be at least 0, got -1"),
    (gradient_check, "pair.py --eps 1", "--eps is for the textbook: give it without pair.py"),
    (gradient_check, "--shape 3 0", "--shape must have numbers above zero, got [3, 0]"),
    (gradient_check, "--shape x", "invalid int value: 'x'"),
    (gradient_check, "--sigma inf", "--sigma must be finite, got inf"),
    (gradient_check, "--seed -1", "--seed must be at least 0, got -1"),
]


@pytest.mark.parametrize(("module", "words", "expected"), WITHOUT_TYPER)
def test_modules(stopped: Callable[..., str], module: Any, words: str, expected: str) -> None:
    assert expected in stopped(lambda: run_command(module.main), *shlex.split(words))


def test_deleted_folder(
    stopped: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = tmp_path / "deleted"
    deleted.mkdir()
    monkeypatch.chdir(deleted)
    deleted.rmdir()
    assert "give an absolute path" in stopped(cli.main, "gradcheck", "pair.py")


def test_memory(stopped: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, "truenorm.verify.report.vectors.write_vectors", MemoryError())
    assert "not enough memory: no reason given; give a" in stopped(cli.main, "vectors", "new")


def test_names_that_are_not_utf8(folder: Path) -> None:
    name = os.fsdecode(b"a\xff.py")
    done = run_main("", "gradcheck", str(folder / name))
    assert (done.returncode, done.stdout) == (2, "")
    assert r"a\udcff.py; give file.py or file.py:name" in done.stderr
    assert len(done.stderr.splitlines()) == 1


EXAMPLE = Path(__file__).parents[3] / "examples/pair.py"
GRADCHECK = [sys.executable, "-m", "truenorm", "gradcheck", str(EXAMPLE)]


@pytest.mark.skipif(os.name == "nt", reason="uses a shell and /dev/full")
@pytest.mark.parametrize(
    ("redirected", "message"),
    [
        (">&-", "truenorm: stdout is closed: send it to a file or a pipe\n"),
        ("2>&- >&-", ""),
        ("| true; exit ${PIPESTATUS[0]}", ""),
        ("--json | true; exit ${PIPESTATUS[0]}", ""),
        ("--help | true; exit ${PIPESTATUS[0]}", ""),
        ("--nonsense 2>/dev/full", ""),
        pytest.param(
            ">/dev/full",
            "truenorm: cannot write the output: [Errno 28] No space left on device; send it to "
            "another place\n",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full"),
        ),
    ],
)
def test_output_that_cannot_be_written(redirected: str, message: str) -> None:
    command = f"{shlex.join(GRADCHECK)} {redirected}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
