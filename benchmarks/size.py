"""``python -m benchmarks.size [CHECKOUT]``: how large the repository is, and how far calls travel.

For src, tests and benchmarks: Python files, lines, lines of imports and ``__all__``, and folders;
the lines of each part of the package and of its largest files; the words of the docs; and, of some
calls, the files of the package in which a Python function is called. The calls are made twice, and
the second is counted. ``--words`` prints the words of each page instead: those of its sentences
and tables, and all. ``--wheel FILE`` prints the bytes of each part of a wheel instead, unpacked
and packed.
"""
# A command prints its result.

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any, cast
from zipfile import ZipFile

TREES = ("src", "tests", "benchmarks")
TRIPS = {
    "forward, native, float32 16x256": ("forward", "native", 16),
    "forward, native, float32 512x256": ("forward", "native", 512),
    "backward, native, float32 512x256": ("backward", "native", 512),
    "forward, reference, float32 512x256": ("forward", "reference", 512),
    "backward, reference, float32 512x256": ("backward", "reference", 512),
    "a subject through verify, float32": ("verify", "", 0),
}


def lines_of_imports(source: str) -> int:
    """Return the lines of import statements and of ``__all__``."""
    count = 0
    for node in ast.walk(ast.parse(source)):
        is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if isinstance(node, ast.Import | ast.ImportFrom) or is_all:
            lines = cast(ast.stmt, node)
            count += (lines.end_lineno or lines.lineno) - lines.lineno + 1
    return count


def tree_size(folder: Path) -> tuple[int, int, int, int]:
    """Return files, lines, lines of imports and folders of the Python files below a folder."""
    paths = list(folder.rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    lines = sum(text.count("\n") for text in texts)
    return len(paths), lines, sum(map(lines_of_imports, texts)), len({p.parent for p in paths})


def lines_of_files(package: Path) -> dict[PurePosixPath, int]:
    """Return the lines of each Python file of a package, the largest first."""
    lines = {
        PurePosixPath(path.relative_to(package).as_posix()): path.read_text("utf-8").count("\n")
        for path in package.rglob("*.py")
    }
    return dict(sorted(lines.items(), key=lambda item: -item[1]))


def lines_by_part(files: Mapping[PurePosixPath, int]) -> Counter[str]:
    """Return the lines of each part: a folder, or in verify the folder of a folder."""
    parts: Counter[str] = Counter()
    for path, lines in files.items():
        depth = 2 if path.parts[0] == "verify" else 1
        parts["/".join(path.parent.parts[:depth]) or "modules"] += lines
    return parts


NOT_BY_HAND = re.compile(r"<!-- begin ([^>]+) -->.*?<!-- end \1 -->", re.DOTALL)
CODE_OR_FORMULA = re.compile(r"^```.*?^```$|\$\$.*?\$\$", re.DOTALL | re.MULTILINE)


def words_by_page(root: Path) -> dict[str, tuple[int, int]]:
    """Return the words written by hand and all words of README and of each page of the docs.

    Code, displayed formulas and the blocks that commands fill are not words written by hand.
    Commands wrote whole pages of older checkouts, and their first line says so.
    """
    pages = [path for path in (root / "docs").rglob("*.md") if "_build" not in path.parts]
    words = {}
    for path in (root / "README.md", *sorted(pages)):
        text = path.read_text(encoding="utf-8")
        by_hand = CODE_OR_FORMULA.sub("", NOT_BY_HAND.sub("", text))
        count = 0 if text.startswith("<!-- Written by") else len(by_hand.split())
        words[path.relative_to(root).as_posix()] = count, len(text.split())
    return words


def wheel_parts(wheel: Path) -> dict[str, tuple[int, int]]:
    """Return the bytes of each part of a wheel, unpacked and packed.

    A part is an extension module, or the files of a folder down to the second one in the package.
    """
    parts: dict[str, tuple[int, int]] = {}
    with ZipFile(wheel) as archive:
        for info in filter(lambda each: not each.is_dir(), archive.infolist()):
            path = PurePosixPath(info.filename)
            compiled = path.suffix in (".so", ".pyd")
            name = str(path if compiled else PurePosixPath(*path.parent.parts[:3]))
            unpacked, packed = parts.get(name, (0, 0))
            parts[name] = unpacked + info.file_size, packed + info.compress_size
    return parts


def files_of_trip(kind: str, backend: str, rows: int) -> list[str]:
    """Return the files of the package in which the second of two calls enters a function."""
    import numpy as np

    import truenorm as tn
    import truenorm.verify as tv

    x, dy = np.random.default_rng(0).standard_normal((2, max(rows, 1), 256), np.float32)
    gamma, beta = np.linspace(0.5, 1.5, 256, dtype=np.float32), np.zeros(256, np.float32)
    how: Any = {"backend": backend}

    def call() -> None:
        if kind == "forward":
            tn.layer_norm(x, gamma, beta, **how)
        elif kind == "backward":
            tn.layer_norm_backward(dy, saved, **how)
        else:
            tv.verify(tv.Subject(_textbook, name="textbook", dtypes=["float32"]))

    saved = tn.layer_norm_forward(x, gamma, beta, **(how if backend else {}))[1]
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    call()
    sys.setprofile(note)
    call()
    sys.setprofile(None)
    package = str(Path(tn.__file__).parent)
    return sorted(name for name in files if name.startswith(package))


def _textbook(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return gamma * (x - mean) / (variance + eps) ** 0.5 + beta


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    described = argparse.ArgumentParser(prog="python -m benchmarks.size", description=__doc__)
    described.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[1])
    described.add_argument("--words", action="store_true", help="print the words of each page")
    described.add_argument("--wheel", type=Path, help="print the parts of a wheel")
    described.add_argument("--trip", help=argparse.SUPPRESS)
    arguments = described.parse_args(argv)
    if arguments.trip:
        print(json.dumps(files_of_trip(*TRIPS[arguments.trip])))
        return 0
    if arguments.wheel:
        parts = wheel_parts(arguments.wheel)
        print(f"{arguments.wheel.name}: {arguments.wheel.stat().st_size:,d} bytes")
        print(f"{'unpacked':>10s}{'packed':>10s}")
        unpacked, packed = map(sum, zip(*parts.values(), strict=True))
        parts["together"] = unpacked, packed
        for part, (unpacked, packed) in sorted(parts.items(), key=lambda item: item[1]):
            print(f"{unpacked:10,d}{packed:10,d}  {part}")
        return 0
    root = arguments.checkout.resolve()
    words = words_by_page(root)
    in_docs = [count for page, count in words.items() if page != "README.md"]
    together = tuple(map(sum, zip(*in_docs, strict=True)))
    if arguments.words:
        print(f"{'by hand':>8s}{'all':>8s}")
        for page, (by_hand, every) in [*words.items(), ("docs together", together)]:
            print(f"{by_hand:8,d}{every:8,d}  {page}")
        return 0
    print(f"{'':12s}{'files':>8s}{'lines':>8s}{'imports':>9s}{'folders':>9s}")
    for tree in TREES:
        files, lines, imports, folders = tree_size(root / tree)
        print(f"{tree:12s}{files:8d}{lines:8d}{imports:9d}{folders:9d}")
    files_of_package = lines_of_files(root / "src" / "truenorm")
    print(f"{'':12s}{'lines':>16s}  of src, by part")
    for part, lines in sorted(lines_by_part(files_of_package).items()):
        print(f"{'':12s}{lines:16d}  {part}")
    print(f"{'':12s}{'lines':>16s}  of the largest files")
    for path, lines in list(files_of_package.items())[:20]:
        print(f"{'':12s}{lines:16d}  {path}")
    print("docs        {:8d} words by hand, {} in all".format(*together))
    for trip in TRIPS:
        done = subprocess.run(
            [sys.executable, __file__, "--trip", trip],
            env={**os.environ, "PYTHONPATH": str(root / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        print(f"{len(json.loads(done.stdout)):4d} files  {trip}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
