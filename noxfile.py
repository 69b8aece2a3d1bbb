import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "docs", "package"]
nox.options.error_on_external_run = True

GROUPS = nox.project.load_toml("pyproject.toml")
OLDEST_NUMPY = "numpy==2.0.*"


def install_group(session: nox.Session, group: str) -> None:
    session.install(*nox.project.dependency_groups(GROUPS, group))


@nox.session
def lint(session: nox.Session) -> None:
    """Run every hook of .pre-commit-config.yaml on every file."""
    install_group(session, "lint")
    session.install("--no-deps", "-e", ".")
    session.run("pre-commit", "run", "--all-files", "--show-diff-on-failure", external=True)


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the package, the tests and this file."""
    install_group(session, "types")
    session.install("-e", ".")
    session.run("mypy")


@nox.session
@nox.parametrize("numpy", ["newest", "oldest"], ids=["newest", "oldest"])
def tests(session: nox.Session, numpy: str) -> None:
    """Run the tests and every example in docstrings, docs and README.

    With the newest NumPy, which is the newest that Numba takes, for all backends; with the oldest
    for the bare install, which has no Numba.
    """
    options: list[str] = []
    if numpy == "newest":
        install_group(session, "tests")
        session.install("-e", ".[fast]")
    else:
        install_group(session, "tests-bare")
        session.install("-e", ".", OLDEST_NUMPY)
        # pytest would import the first two to look for examples, and they import Numba. The third
        # takes a minute, and NumPy's version is nothing to it.
        left_out = [
            "src/truenorm/kernels/fused",
            "tests/kernels/fused",
            "tests/verify/test_planted.py",
        ]
        options = [f"--ignore={path}" for path in left_out]
    session.run("pytest", "--numprocesses", "2", *options, *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the tests that take minutes, and Hypothesis for long."""
    install_group(session, "tests")
    session.install("-e", ".[fast]")
    environment = {"HYPOTHESIS_PROFILE": "slow"}
    session.run("pytest", "-m", "slow or not slow", "-n", "2", *session.posargs, env=environment)


@nox.session
def perf(session: nox.Session) -> None:
    """Print what everything costs; nothing here passes or fails."""
    install_group(session, "tests")
    session.install("-e", ".[fast]")
    commands = [
        ["benchmarks.reference"],
        ["benchmarks.engine", "--only", "large", "types", "small"],
        # The last section of the engine's, which is this command, would be the same again.
        ["benchmarks.family_cost", "--backend", "fused"],
        ["benchmarks.memory"],
    ]
    for command in commands:
        session.run("python", "-m", *command, *session.posargs)


@nox.session
def peers(session: nox.Session) -> None:
    """Print how fast others are; each peer has an environment, made by the command itself."""
    session.run("python", "-m", "benchmarks.peers", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages; a warning is an error."""
    install_group(session, "docs")
    session.install("-e", ".")
    session.run("sphinx-build", "-W", "--keep-going", "-n", "docs", "docs/_build/html")


@nox.session
def package(session: nox.Session) -> None:
    """Build wheel and sdist, then use the wheel as a newcomer would: bare, and with Numba."""
    install_group(session, "package")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    artefacts = sorted(str(path) for path in Path("dist").iterdir())
    wheel = next(name for name in artefacts if name.endswith(".whl"))
    session.run("twine", "check", "--strict", *artefacts)
    session.run("check-wheel-contents", wheel)
    use_in_fresh_environment(session, "bare", wheel)
    # Asked for by name: without Numba this fails, where an automatic choice would go unnoticed.
    use_in_fresh_environment(session, "fast", f"{wheel}[fast]", TRUENORM_BACKEND="fused")
    judge_in_fresh_environment(session, wheel)


def fresh_environment(session: nox.Session, name: str, requirement: str) -> Path:
    """Make an environment with a requirement and what it needs; return its folder of programs."""
    fresh = Path(session.create_tmp()).resolve() / name
    session.run("python", "-m", "venv", "--clear", str(fresh))
    programs = fresh / ("Scripts" if sys.platform == "win32" else "bin")
    session.run(str(programs / "python"), "-m", "pip", "install", requirement, external=True)
    return programs


def judge_in_fresh_environment(session: nox.Session, wheel: str) -> None:
    """Let the installed judge find the bugs of the example; without its extra, it says so."""
    example = str(Path("examples/verify/buggy_check.py").resolve())
    for name, requirement, expected in (("bare", wheel, 2), ("verify", f"{wheel}[verify]", 1)):
        programs = fresh_environment(session, f"judge-{name}", requirement)
        with session.chdir(programs.parent):
            session.run(
                str(programs / "truenorm"),
                "verify",
                example,
                external=True,
                success_codes=[expected],
            )


def use_in_fresh_environment(
    session: nox.Session, name: str, requirement: str, **variables: str
) -> None:
    """Install into an environment of its own; there, run the README and check the gradients."""
    programs = fresh_environment(session, name, requirement)
    python, fresh = str(programs / "python"), programs.parent
    readme = str(Path("README.md").resolve())
    commands = [
        ["doctest", "-o", "NORMALIZE_WHITESPACE", readme],
        ["truenorm.gradient_check"],
    ]
    with session.chdir(fresh):  # away from the checkout, so that the wheel is what is imported
        for command in commands:
            session.run(python, "-W", "error", "-m", *command, env=variables, external=True)
