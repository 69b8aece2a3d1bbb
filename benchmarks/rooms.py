"""``python -m benchmarks.rooms [COMMIT]``: how large the house is, now or at a commit.

Lines and files of src and tests, the fullest folders, the longest files, and functions with many
parameters. tests/house/test_rooms.py holds what is on disk to the limits.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

__all__ = ["on_disk", "parameters", "rooms"]

ROOT = Path(__file__).parents[1]
TREES = ("src", "tests")

Sources = Mapping[str, str]
"""The text of each Python file, by its path."""


def on_disk() -> Sources:
    """Return the files as they are."""
    paths = (path for tree in TREES for path in (ROOT / tree).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def at(commit: str) -> Sources:
    """Return the files as they were at a commit."""
    listed = _git("ls-tree", "-r", "--name-only", commit, *TREES).splitlines()
    return {name: _git("show", f"{commit}:{name}") for name in listed if name.endswith(".py")}


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def parameters(source: str) -> Iterator[tuple[str, int]]:
    """Yield every function of a file with the number of its parameters, without self."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            given = node.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            yield node.name, len([name for name in names if name not in ("self", "cls")])


def rooms(sources: Sources) -> Iterator[str]:
    """Yield what there is to say of some files, line by line."""
    lengths = {name: text.count("\n") for name, text in sources.items()}
    for tree in TREES:
        some = [length for name, length in lengths.items() if name.startswith(f"{tree}/")]
        yield f"{tree:6s}{sum(some):7d} lines{len(some):5d} files"
    yield f"both  {sum(lengths.values()):7d} lines{len(lengths):5d} files"
    folders = Counter(str(PurePosixPath(name).parent) for name in sources)
    yield from (f"{count:4d} files  {folder}" for folder, count in folders.most_common(5))
    longest = sorted(lengths.items(), key=lambda item: -item[1])[:5]
    yield from (f"{length:4d} lines  {name}" for name, length in longest)
    many = [
        (count, f"{path}: {function}")
        for path, text in sources.items()
        for function, count in parameters(text)
    ]
    yield from (f"{count:4d} parameters  {where}" for count, where in sorted(many)[::-1][:8])


def main(argv: list[str] | None = None) -> int:
    """Print the lines."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.rooms",
        description="Print lines and files of src and tests, the fullest folders, the longest "
        "files and the functions with most parameters.",
    )
    described.add_argument("commit", nargs="?", help="a commit instead of what is on disk")
    commit = described.parse_args(argv).commit
    print("\n".join(rooms(at(commit) if commit else on_disk())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
