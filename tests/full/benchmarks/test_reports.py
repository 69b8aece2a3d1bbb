"""Reports to other projects: the reproducers are short, and print what the pages show."""

import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import pytest

from benchmarks.reports import FOLDER, REPORTS, block, run


def test_every_page_is_a_report() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} == {*REPORTS, "index"}


@pytest.mark.parametrize("name", REPORTS)
def test_output_is_what_the_reproducer_prints(name: str) -> None:
    package, version = REPORTS[name].name, REPORTS[name].version
    try:
        installed = installed_version(package).partition("+")[0]
    except PackageNotFoundError:
        installed = "no version"
    if installed != version:
        pytest.skip(
            f"{package} {version} is needed, {installed} is installed; "
            f"`python -m benchmarks.reports {name}` installs it and runs the reproducer"
        )
    assert run(name, sys.executable) == block(name, "text")
