"""The command ``truenorm`` itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import truenorm
from truenorm import cli
from truenorm.cli import app as application
from truenorm.cli.app import COMMANDS, app

TESTS = Path(__file__).parents[1]


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which can import what is in the folder of tests."""
    folders = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders)), **environment},
    )


def run_main(before: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command, after some lines of Python."""
    script = f"{before}\nfrom truenorm.cli import main\nmain()"
    return run_python("-c", script, *arguments, **environment)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    done = run_main(f"import sys; sys.modules[{missing!r}] = None", "verify", "x.py")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "the truenorm command needs typer and rich: pip install 'truenorm[verify]'\n"
    )


def test_another_import_error_is_not_blamed_on_the_extra() -> None:
    done = run_main("import sys; sys.modules['truenorm.verify.suite'] = None", "--version")
    assert "pip install" not in done.stderr
    assert "truenorm.verify.suite" in done.stderr


def test_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"truenorm {truenorm.__version__}\n")


def test_help_names_every_command() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert "..." not in done.stdout.split("Commands:")[1]  # no summary is cut off


@pytest.mark.parametrize(
    "program", [["-c", "from truenorm.cli import main; main()"], ["-m", "truenorm"]]
)
@pytest.mark.parametrize(
    ("words", "found"),
    [("truenorm ver", ["verify"]), ("truenorm cost --dtype bfl", ["bfloat16"])],
)
def test_completion(program: list[str], words: str, found: list[str]) -> None:
    """As the lines that --show-completion prints ask for it."""
    done = run_python(
        *program,
        _TRUENORM_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
    )
    assert (done.returncode, done.stdout.split()) == (0, found), done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_an_example_and_the_exit_codes(name: str) -> None:
    done = CliRunner().invoke(app, [name, "-h"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert any(line.startswith(f"      truenorm {name}") for line in lines)
    assert "      2  it could not run; stderr says why" in lines


@pytest.mark.parametrize("arguments", [[], ["judge"], ["verify"], ["vectors", "x", "--colour"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_a_bug_of_truenorm_is_not_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own exit code 1 would say that the subject has one."""

    def broken(**_: object) -> None:
        raise RuntimeError("the judge is ill")

    monkeypatch.setattr(application, "app", broken)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "RuntimeError: the judge is ill" in said
    assert "a bug of truenorm" in said.splitlines()[-1]


def test_names_beyond_the_terminal_s_encoding() -> None:
    before = (
        "import truenorm.cli.verify as command\n"
        "from verify.fake_report import failing_report\n"
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
        ("truenorm.cli.app", ("jinja2", "matplotlib")),
    ],
)
def test_packages_are_loaded_by_those_who_need_them(module: str, absent: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print([name for name in {absent} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_a_command_loads_no_other() -> None:
    """All of them take most of a second to import."""
    code = (
        "import sys; sys.argv = ['truenorm', 'cost', '8', '64']; import truenorm.cli.app; "
        "print(*(name for name in ('bench', 'cost') if f'truenorm.cli.{name}' in sys.modules))"
    )
    assert run_python("-c", code).stdout == "cost\n"
