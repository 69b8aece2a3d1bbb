"""Plant faults in the sources, one at a time, and run the fast tests.

``python -m benchmarks.faults`` plants every fault of ``faults.toml`` in a copy of the checkout.
Words select faults by part or by name. A fault is found if a test fails; the tests of the changed
module run first, since they are likely to find it. A test that cannot be imported finds nothing:
the fault is broken. The command exits with 1 if fewer than five sixths of the faults are found.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from benchmarks.common import ROOT, options
from truenorm.tools.text import table

FAULTS = Path(__file__).with_suffix(".toml")
FAST = "tests/fast"
LEAST_SHARE = 5 / 6
SECONDS = 900
"""Tests that take longer hang: then the fault is found."""
OBJECTS = ROOT / ".nox" / "kept" / "core"
COMPILE = ("setup.py", "--quiet", "build_ext", "--inplace")


@dataclass(frozen=True)
class Fault:
    """Text of a file that is replaced."""

    part: str
    name: str
    file: str
    old: str
    new: str

    def replaced(self, text: str) -> str:
        """Return the text with the fault; the old text must occur in it once."""
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file} must contain once: {self.old!r}; adapt the fault in {FAULTS.name}"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Result:
    """What the tests made of a fault; `by` names the first test that failed."""

    fault: Fault
    by: str
    seconds: float


def faults(*words: str) -> list[Fault]:
    """Return the faults whose part or name contains one of the words; all without words."""
    every = [Fault(**each) for each in tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]]
    return [
        each
        for each in every
        if not words or any(word in f"{each.part}: {each.name}" for word in words)
    ]


def nearest(fault: Fault) -> str:
    """Return the fast tests of the changed file, or of the next folder above that has some."""
    module = Path(fault.file).relative_to("src/truenorm")
    test = Path(FAST, module).with_name(f"test_{module.stem}.py")
    return next(str(each) for each in (test, *test.parents) if (ROOT / each).exists())


def copy_checkout(folder: Path) -> None:
    """Copy the files of the checkout, and the C core that was built in it."""
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    built = (path.relative_to(ROOT) for path in (ROOT / "src").rglob("_core*.so"))
    for name in (*listed.splitlines(), *map(str, built)):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, whose sources it imports."""
    cache = os.environ.get("TRUENORM_BUILD_CACHE", str(OBJECTS))
    variables = {
        "PYTHONPATH": str(folder / "src"),
        "TRUENORM_BUILD_CACHE": cache,
        "TRUENORM_REQUIRE_NATIVE": "1",
        "PYTHONDONTWRITEBYTECODE": "",  # a copy imports the same files again and again
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def first_failure(folder: Path, tests: Sequence[str]) -> str:
    """Run tests up to the first that fails, and return its name, or an empty string."""
    command = ("-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests)
    try:
        done = run(folder, *command)
    except subprocess.TimeoutExpired:
        return f"more than {SECONDS} s"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        return ""
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    if failed is None:
        raise RuntimeError(f"no test ran:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return failed[1]


def plant(fault: Fault, folder: Path, tests: Sequence[str]) -> Result:
    """Plant a fault in a copy, run the tests, and remove the fault."""
    file, start = folder / fault.file, time.monotonic()
    text = file.read_text(encoding="utf-8")
    file.write_text(fault.replaced(text), encoding="utf-8")
    cores = {path: path.read_bytes() for path in folder.glob("src/**/_core*.so")}
    try:
        if fault.file.endswith(".c"):
            run(folder, *COMPILE).check_returncode()
        by = first_failure(folder, [nearest(fault)]) or first_failure(folder, tests)
    finally:
        file.write_text(text, encoding="utf-8")
        for path, content in cores.items():
            path.write_bytes(content)
    return Result(fault, by, time.monotonic() - start)


def plant_all(selected: Sequence[Fault], tests: Sequence[str], jobs: int) -> Iterator[Result]:
    """Yield the result of each fault; each job has a copy of its own."""
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for k in range(jobs):
            copy_checkout(Path(temporary, str(k)))
            copies.put(Path(temporary, str(k)))

        def planted(fault: Fault) -> Result:
            folder = copies.get()
            try:
                return plant(fault, folder, tests)
            finally:
                copies.put(folder)

        for each in selected:  # a fault that does not fit is an error at once
            each.replaced((ROOT / each.file).read_text(encoding="utf-8"))
        try:
            yield from pool.map(planted, selected)
        finally:  # after an error in one fault, no other is planted
            pool.shutdown(cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the selected faults, and print a table."""
    parser = options("faults", "Plant faults, and run the fast tests.")
    parser.add_argument("words", nargs="*", help="part or name of faults; all without words")
    parser.add_argument("--tests", nargs="+", default=[FAST], help="tests to run")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    options_given = parser.parse_args(arguments)
    selected = faults(*options_given.words)
    rows, found = [], 0
    for result in plant_all(selected, options_given.tests, options_given.jobs):
        found += bool(result.by)
        print(f"{result.fault.part}: {result.fault.name}: {result.by or 'NOT FOUND'}", flush=True)
        rows.append([f"{result.fault.part}: {result.fault.name}", f"{result.seconds:.0f}"])
    print(table(["fault", "seconds"], rows))
    print(f"{found} of {len(selected)} found")
    return 0 if found >= LEAST_SHARE * len(selected) else 1


if __name__ == "__main__":
    sys.exit(main())
