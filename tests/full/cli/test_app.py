"""The ``truenorm`` command: help, exit codes, lazy imports, printed and written reports."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import truenorm
from shared.cli.recording import TESTS, Calls, record, run, run_main, run_python
from shared.verify.fake_report import failing_report
from truenorm import cli
from truenorm.cli import app as application
from truenorm.cli import common
from truenorm.cli.app import COMMANDS, GROUPS
from truenorm.cli.common import html_writer, progress_bar

EXAMPLES = TESTS.parent / "examples"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_extra_is_named(missing: str) -> None:
    done = run_main(f"import sys; sys.modules[{missing!r}] = None", "verify", "x.py")
    assert done.returncode == 2
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == "truenorm: this command needs typer and rich: pip install 'truenorm[verify]'"
    assert "python -m truenorm.doctor" in second


BARE = ("typer", "rich", "ml_dtypes", "flint", "matplotlib", "jinja2", "pyopencl", "click")
"""Packages that an installation with NumPy alone does not have."""


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        ("doctor", ["--help"], "python -m truenorm.doctor --full > my_report.txt"),
        ("doctor", [], "HEALTHY: nothing is wrong."),
        ("doctor", ["--json"], '"healthy": true'),
        ("gradient_check", ["--help"], "python -m truenorm.gradient_check my_pair.py"),
        ("gradient_check", ["--shape", "2", "5"], "PASS\ncomplex: "),
        ("gradient_check", [str(EXAMPLES / "pair.py"), "--json"], '"verdict": "PASS"'),
    ],
)
def test_modules_with_numpy_alone(module: str, arguments: list[str], words: str) -> None:
    script = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({BARE})); "
        f"runpy.run_module('truenorm.{module}', run_name='__main__')"
    )
    done = run_python("-c", script, *arguments, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert words in done.stdout
    assert "--help" not in arguments or max(map(len, done.stdout.splitlines())) <= 80


def test_other_import_errors_are_not_blamed_on_the_extra() -> None:
    done = run_main("import sys; sys.modules['truenorm.verify.suite'] = None", "--version")
    assert "pip install" not in done.stderr
    assert "truenorm.verify.suite" in done.stderr


def test_version() -> None:
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"truenorm {truenorm.__version__}\n")


def test_help_lists_every_command_in_its_group() -> None:
    done = run_python("-m", "truenorm", "--help", COLUMNS="80")
    assert done.returncode == 0
    for title, names in GROUPS.items():
        section = done.stdout.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(names)
        assert "..." not in section  # no summary is truncated


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_80_columns(name: str) -> None:
    lines = run(*filter(None, [name]), "--help").stdout.splitlines()
    assert len(lines) > 10
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(
    "program", [["-c", "from truenorm.cli import main; main()"], ["-m", "truenorm"]]
)
@pytest.mark.parametrize(
    ("words", "completions"),
    [("truenorm ver", ["verify"]), ("truenorm verify --dtype bfl", ["bfloat16"])],
)
def test_completion(program: list[str], words: str, completions: list[str]) -> None:
    """Complete in the way the script of --show-completion does."""
    done = run_python(
        *program,
        _TRUENORM_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
    )
    assert (done.returncode, done.stdout.split()) == (0, completions), done.stderr


@pytest.mark.parametrize("arguments", [[], ["grade"], ["verify"], ["vectors", "x", "--colour"]])
def test_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_bug_of_truenorm_is_not_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An uncaught error exits with 2: Python's exit code 1 would mean a finding."""

    def broken(**_: object) -> None:
        raise RuntimeError("the judge is broken")

    monkeypatch.setattr(application, "app", broken)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "RuntimeError: the judge is broken" in message
    assert "a bug of truenorm" in message.splitlines()[-1]


def test_names_that_the_terminal_cannot_encode() -> None:
    before = (
        "import truenorm.cli.verify as command\n"
        "from shared.verify.fake_report import failing_report\n"
        "command.verify_target = lambda *_, **__: failing_report()"
    )
    done = run_main(before, "verify", "x.py", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (1, "")
    assert "\\xb5\\U0001f642" in done.stdout


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("truenorm.verify", ("typer", "rich", "jinja2", "matplotlib", "ml_dtypes")),
        ("truenorm.cli", ("typer", "rich", "numpy")),
        ("truenorm.cli.app", ("jinja2", "matplotlib", "flint")),
        ("truenorm.cli.commands", ("truenorm.verify", "truenorm.kernels")),
    ],
)
def test_imports_are_lazy(module: str, absent: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print([name for name in {absent} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Put a report in the place of the judge's run; return its calls."""
    return record(monkeypatch, "truenorm.cli.verify.verify_target", failing_report())


@pytest.mark.usefixtures("calls")
def test_report_as_text() -> None:
    done = run("verify", "x.py")
    assert (done.exit_code, done.stderr) == (1, "")
    assert "FAIL" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.usefixtures("calls")
def test_json_is_alone_on_stdout_when_a_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    done = run("verify", "x.py", "--json", "--html", file)
    assert done.exit_code == 1
    assert isinstance(json.loads(done.stdout), dict)
    assert done.stderr == f"wrote {file}\n"
    assert file.read_bytes().lstrip().startswith(b"<!doctype html>")


def test_missing_package_is_named_before_the_run(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("verify", "x.py", "--html", tmp_path / "a.html")
    assert done.exit_code == 2
    assert "--html needs the package matplotlib" in done.stderr
    assert "pip install 'truenorm[verify]'" in done.stderr
    assert calls == []


@pytest.mark.usefixtures("calls")
def test_report_is_printed_if_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    done = run("verify", "x.py", "--html", tmp_path / "a.html")
    assert done.exit_code == 2
    assert "FAIL" in done.stdout
    assert "No space left on device; give --html another file" in done.stderr


@pytest.mark.parametrize("name", ["a.jpg", "a"])
def test_wrong_suffix_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    html_writer(tmp_path / "a.HTML")
    with pytest.raises(SystemExit):
        html_writer(tmp_path / name)
    assert "give --html a file that ends in .html" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "UNUSED"])
def test_lines_of_progress_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Forced colours make no difference; short work writes nothing."""
    monkeypatch.setenv(variable, "1")
    with progress_bar("judging") as update:
        update(0, 7, "case")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(common, "LINE_EVERY", 0.02)
    with progress_bar("judging") as update:
        time.sleep(0.1)
        update(3, 7, "case [bold]\x1b[2J\n::error::")
        time.sleep(0.1)
    out, err = capsys.readouterr()
    first, *_, last = err.splitlines()
    assert out == ""
    assert first == "judging 0 s"
    assert last == r"judging 3/7 case [bold]\x1b[2J ::error:: 0 s"


def test_progress_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes on after the last case: grading follows, and takes longest."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("judging") as update:
        update(7, 7, "case [bold]\x1b[2J\n")
        time.sleep(1.3)
    out, err = capsys.readouterr()
    assert out == ""
    for words in ("judging", "7/7", "0:00:01", r"case [bold]\x1b[2J"):
        assert words in err
    assert err.endswith("\x1b[2K")  # the line is erased
