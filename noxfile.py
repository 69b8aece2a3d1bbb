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
    """Run the tests and every example in docstrings, docs and README."""
    install_group(session, "tests")
    session.install("-e", ".", *([OLDEST_NUMPY] if numpy == "oldest" else []))
    session.run("pytest", "--numprocesses", "2", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the tests that take minutes, and Hypothesis for long."""
    install_group(session, "tests")
    session.install("-e", ".")
    environment = {"HYPOTHESIS_PROFILE": "slow"}
    session.run("pytest", "-m", "slow or not slow", "-n", "2", *session.posargs, env=environment)


@nox.session
def perf(session: nox.Session) -> None:
    """Print what everything costs; nothing here passes or fails."""
    install_group(session, "tests")
    session.install("-e", ".")
    session.run("python", "-m", "benchmarks.reference", *session.posargs)
    session.run("python", "-m", "benchmarks.family_cost", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages; a warning is an error."""
    install_group(session, "docs")
    session.install("-e", ".")
    session.run("sphinx-build", "-W", "--keep-going", "-n", "docs", "docs/_build/html")


@nox.session
def package(session: nox.Session) -> None:
    """Build wheel and sdist, then use the wheel as a newcomer would: with NumPy alone."""
    install_group(session, "package")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    artefacts = sorted(str(path) for path in Path("dist").iterdir())
    wheel = next(name for name in artefacts if name.endswith(".whl"))
    session.run("twine", "check", "--strict", *artefacts)
    session.run("check-wheel-contents", wheel)

    fresh = Path(session.create_tmp()).resolve() / "fresh"
    session.run("python", "-m", "venv", "--clear", str(fresh))
    python = str(fresh / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    readme = Path("README.md").resolve()
    session.run(python, "-m", "pip", "install", wheel, external=True)
    with session.chdir(fresh):  # away from the checkout, so that the wheel is what is imported
        session.run(
            python,
            "-W",
            "error",
            "-m",
            "doctest",
            "-o",
            "NORMALIZE_WHITESPACE",
            str(readme),
            external=True,
        )
        session.run(python, "-W", "error", "-m", "truenorm.gradient_check", external=True)
