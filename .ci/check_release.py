"""Check that a tag, the version, the changelog and the citation belong to one release.

usage: python .ci/check_release.py TAG
"""

import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]


def problems(tag: str) -> Iterator[str]:
    """Yield what must be mended before the tag can be published."""
    version = field("src/truenorm/__init__.py", r'^__version__ = "(.*)"')
    if tag != f"v{version}":
        yield f"the tag of version {version} must be v{version}, got {tag}"
    cited = field("CITATION.cff", r"^version: (.*)")
    if cited != version:
        yield f"CITATION.cff must have version {version}, got {cited}"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if unreleased and unreleased[1].strip():
        yield f"CHANGELOG.md has entries under Unreleased: move them to version {version}"
    heading = re.search(rf"^## {re.escape(version)} \((.*)\)$", changelog, re.M)
    if not heading:
        yield f"CHANGELOG.md must have a heading '## {version} (YYYY-MM-DD)'"
        return
    try:
        date.fromisoformat(heading[1])
    except ValueError:
        yield f"the date of version {version} in CHANGELOG.md must be YYYY-MM-DD, got {heading[1]}"
    released = field("CITATION.cff", r"^date-released: (.*)")
    if released != heading[1]:
        yield f"CITATION.cff must have date-released {heading[1]}, got {released}"


def field(file: str, pattern: str) -> str:
    """Return the group of a pattern in a file, or 'nothing'."""
    match = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.M)
    return match[1] if match else "nothing"


def main() -> int:
    """Print the problems; return the exit code."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    found = list(problems(sys.argv[1]))
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
