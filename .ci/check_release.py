"""Check that a tag, the version, the changelog and the citation belong to one release.

usage: python .ci/check_release.py TAG
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def problems(tag: str) -> Iterator[str]:
    """Yield what must be mended before the tag can be published."""
    version = field("src/truenorm/__init__.py", r'^__version__ = "(.*)"')
    if ".dev" in version:
        yield f"{version} is a development version: set __version__ to that of the release"
        return
    if tag != f"v{version}":
        yield f"the tag of version {version} must be v{version}, got {tag}"
    cited = field("CITATION.cff", r"^version: (.*)")
    if cited != version:
        yield f"CITATION.cff must have version {version}, got {cited}"
    heading = field("CHANGELOG.md", r"^## (.*)")
    match = re.fullmatch(rf"{re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)", heading)
    if not match:
        yield (
            f"the first heading of CHANGELOG.md must be '{version} (YYYY-MM-DD)', got '{heading}'"
        )
        return
    released = field("CITATION.cff", r"^date-released: (.*)")
    if released != match[1]:
        yield f"CITATION.cff must have date-released {match[1]}, got {released}"


def field(file: str, pattern: str) -> str:
    """Return the group of the first match of a pattern in a file, or 'nothing'."""
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
