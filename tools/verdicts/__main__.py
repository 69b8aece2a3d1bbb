"""Write a fingerprint of verdicts, or print what changed between two.

``python -m tools.verdicts --to FOLDER`` judges all parts and compares them with the record.
Exit code 1 says that a verdict, a finding or a record differs; new cases and words do not count.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tools.verdicts.compare import compare
from tools.verdicts.files import RECORD, read, write
from tools.verdicts.kernels import NEED_TORCH, PARTS
from tools.verdicts.workers import run

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def parts_here(parts: Sequence[str]) -> list[str]:
    """Return the parts that can run; say which are left out since PyTorch is not installed."""
    if find_spec("torch"):
        return [*parts]
    for each in set(parts).intersection(NEED_TORCH):
        print(f"SKIPPED {each}: PyTorch is not installed (group torch)", file=sys.stderr)
    return [each for each in parts if each not in NEED_TORCH]


def compared(old: Path, new: Path, parts: Sequence[str]) -> int:
    """Print what changed in the parts that both folders have; return the exit code."""
    changed = 0
    for part in parts:
        paths = [folder / f"{part}.txt" for folder in (old, new)]
        if absent := [path for path in paths if not path.exists()]:
            print(f"{part}: NOT COMPARED, there is no {absent[0]}")
            continue
        text, count = compare(*map(read, paths))
        print(f"{part}: {text}")
        changed += count
    return 1 if changed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.verdicts", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], metavar="PART")
    parser.add_argument("--kernels", nargs="+", default=[], help="words of names, to print")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--to", type=Path, help="the folder to write to")
    parser.add_argument("--record", action="store_true", help="write the record")
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="judge nothing: two folders"
    )
    arguments = parser.parse_args(argv)
    if arguments.compare:
        old, new = arguments.compare
        return compared(old, new, arguments.parts)
    folder = RECORD if arguments.record else arguments.to
    if not (folder or arguments.kernels):
        parser.error("--to FOLDER, --record or --kernels is required")
    # For the processes that judge: each has one core, and threads change the bits of sums.
    os.environ |= dict.fromkeys(THREADS, "1")
    parts = parts_here(arguments.parts)
    for part in parts:
        start = time.monotonic()
        fingerprints = run(part, arguments.jobs, arguments.kernels)
        seconds = time.monotonic() - start
        print(f"{part}: {len(fingerprints)} kernels in {seconds:.0f} s", flush=True)
        if arguments.kernels:
            for each in fingerprints:
                print("\n  ".join([each.kernel, each.verdict, *each.findings, *each.words]))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write(folder / f"{part}.txt", fingerprints)
    if arguments.record or arguments.kernels:
        return 0
    return compared(RECORD, folder, parts)


if __name__ == "__main__":
    sys.exit(main())
