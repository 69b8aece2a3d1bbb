"""The package has one version: the source has it, and everything else reads or omits it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pages import expand

ROOT = Path(__file__).parents[3]
NUMBER = r"\d+\.\d+\.\d+"
SUFFIX = r"(?:\.?(?:a|b|rc|dev|post)\d+)*"
SOURCE = "src/truenorm/__init__.py"
(VERSION,) = re.findall(
    r'^__version__ = "(.*)"$', (ROOT / SOURCE).read_text(encoding="utf-8"), re.MULTILINE
)
HEADINGS = re.findall(
    r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
)
# Sorted: each process of pytest-xdist must collect the same tests in the same order.
RELEASES = sorted(set(re.findall(rf"\b{NUMBER}", "\n".join([VERSION, *HEADINGS]))))
# History: the releases, and the versions that were measured.
RECORDS = ("CHANGELOG.md", "benchmarks/results/")


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file of the repository; pages have their results."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\0"):
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        if not name.startswith(RECORDS) and b"\0" not in content:
            text = content.decode("utf-8")
            yield name, expand(text) if Path(name).suffix == ".md" else text


def versions_in(text: str) -> list[str]:
    """Return numbers behind the name of the package, and numbers of its releases anywhere.

    A number behind `==` belongs to the package that is named there.
    """
    named = rf"\btruenorm(?:\[[\w,]+\])?\W{{1,4}}v?({NUMBER}{SUFFIX})"
    release = rf"(?<![\d.=])((?:{'|'.join(map(re.escape, RELEASES))}){SUFFIX})(?![\d.]*\d)"
    return [first or second for first, second in re.findall(f"{named}|{release}", text)]


def test_only_source_and_citation_have_a_version() -> None:
    found = {name: versions for name, text in texts() if (versions := versions_in(text))}
    assert found == {SOURCE: [VERSION], "CITATION.cff": [VERSION]}


def test_the_changelog_has_one_open_heading_until_the_release() -> None:
    first, *others = HEADINGS
    expected = "Unreleased" if ".dev" in VERSION else rf"{re.escape(VERSION)} \(.*\)"
    assert re.fullmatch(expected, first)
    for heading in others:
        assert re.fullmatch(rf"{NUMBER} \(\d{{4}}-\d\d-\d\d\)", heading)
