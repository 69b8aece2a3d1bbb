"""``python -m benchmarks.world``: judge norms of released packages, each in its environment.

Every norm of packages.toml runs in a process with a time limit. Rows are written as they are
measured, and rows in the file are not measured again: an interrupted run is resumed.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.common import RESULTS, ROOT, machine, read_results
from benchmarks.environments import megabytes_of, python_for, versions
from benchmarks.world.judged import differences, judge_norm
from benchmarks.world.listed import ListedNorm, Package, read_list
from benchmarks.world.reproduce import run_all
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import duration

OUTPUT = RESULTS / "world.json"
SECONDS, TIME = 900.0, 15.0


class Limits(NamedTuple):
    """Seconds that a row may take in all, and those of its calls."""

    row: float
    time: float


def instruction_set() -> str:
    """Return the widest vector instructions of the processor, as Linux names them."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return ""
    return next((each for each in ("avx512f", "avx2", "asimd", "sse4_2") if each in flags), "")


def row_of(norm: ListedNorm, limits: Limits, earlier: Path | None) -> dict[str, Any]:
    """Return the row of a norm: what it is, then its outcome, whatever happens."""
    about = {
        "name": norm.name,
        "package": norm.package.name,
        "calls": norm.calls,
        "target": norm.target,
        "operation": norm.operation,
        "requirements": list(norm.package.requirements),
        "variables": dict(norm.package.variables),
    }
    started = time.monotonic()
    try:
        python = python_for(norm.package.peer)
    except subprocess.CalledProcessError as error:
        return {**about, "outcome": "did not install", "reason": f"{error.cmd} failed"}
    names = [each.partition("==")[0].partition("[")[0] for each in norm.package.requirements]
    about["versions"] = versions(python, ["numpy", *names])
    about["megabytes"] = megabytes_of(norm.package.peer)
    outcome = in_time(norm, limits, earlier)
    about["limits"] = limits._asdict()
    return {**about, **outcome, "run_seconds": round(time.monotonic() - started, 1)}


def in_time(norm: ListedNorm, limits: Limits, earlier: Path | None) -> dict[str, Any]:
    """Judge a norm in a process that is ended after a time limit.

    If there is an `earlier` file, the calls of its row are made, however long they take.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder, "row.json")
        arguments = ["--row", norm.name, "--output", str(file), "--time", str(limits.time)]
        arguments += ["--earlier", str(earlier)] if earlier else []
        command = [sys.executable, "-m", "benchmarks.world", *arguments]
        process = subprocess.Popen(command, cwd=ROOT)
        try:
            code = process.wait(limits.row)
        except subprocess.TimeoutExpired:
            return {"outcome": "too slow", "reason": f"not judged within {limits.row:g} s"}
        finally:
            process.kill()  # its own processes end with it
            process.wait()
        if code:
            return {"outcome": "did not run", "reason": f"the judge ended with exit code {code}"}
        return read_results(file)


def is_current(row: Mapping[str, Any], norm: ListedNorm) -> bool:
    """Return True if a row was measured as the list says today."""
    listed = (list(norm.package.requirements), norm.target, dict(norm.package.variables))
    return (row["requirements"], row["target"], row["variables"]) == listed


def measure(
    norms: Sequence[ListedNorm],
    order: Sequence[str],
    output: Path,
    limits: Limits,
    *,
    again: bool,
    earlier: Path | None = None,
) -> list[dict[str, Any]]:
    """Judge norms and write the file after each; return the rows that were measured."""
    rows = {each["name"]: each for each in read_results(output)["rows"]} if output.exists() else {}
    measured = []
    for number, norm in enumerate(norms, start=1):
        if not again and norm.name in rows and is_current(rows[norm.name], norm):
            continue
        row = row_of(norm, limits, earlier)
        rows[norm.name] = row
        measured.append(row)
        facts = machine(usable_cores()) | {"instructions": instruction_set()}
        listed = [rows[name] for name in order if name in rows]
        strict_json.write({"machine": facts, "limits": limits._asdict(), "rows": listed}, output)
        status_line()
        print(f"{number}/{len(norms)} {norm.name}: {in_words(row)}", flush=True)
    return measured


def cost(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the time of rows, installation included, and the disk of their environments."""
    known = list(rows)
    seconds = sum(row.get("run_seconds", 0.0) for row in known)
    sizes = {name: size for row in known for name, size in row.get("megabytes", {}).items()}
    return (
        f"{len(known)} rows in {duration(seconds)}, {len(sizes)} environments of "
        f"{sum(sizes.values()) / 1000:.1f} GB"
    )


def in_words(row: Mapping[str, Any]) -> str:
    """Return a row as one line."""
    if row["outcome"] != "judged":
        return f"{row['outcome']}: {row['reason'].splitlines()[-1]}"
    by_type: dict[str, list[str]] = {}
    for each in row["grades"]:
        by_type.setdefault(each["dtype"], []).append(f"{each['output']} {each['grade']}")
    failed = [name for name, word in row["verdicts"].items() if word == "fail"]
    grades = "; ".join(f"{dtype}: {', '.join(each)}" for dtype, each in by_type.items())
    fails = f"; fails: {', '.join(failed)}" if failed else ""
    return f"{grades}{fails} ({row['run_seconds']:g} s)"


def chosen_norms(packages: Sequence[Package], only: Sequence[str]) -> list[ListedNorm]:
    """Return the norms of packages, or those whose name contains a text; or all."""
    return [
        norm
        for package in packages
        for norm in package.norms
        if not only or any(_is_chosen(norm, each, packages) for each in only)
    ]


def _is_chosen(norm: ListedNorm, text: str, packages: Sequence[Package]) -> bool:
    if any(text == package.name for package in packages):
        return text == norm.package.name
    return text.lower() in norm.name.lower()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.world", description=__doc__)
    add = made.add_argument
    add(
        "--only", action="append", default=[], metavar="NAME", help="packages or norms; repeatable"
    )
    add("--list", action="store_true", help="list packages and norms, and measure nothing")
    add("--install", action="store_true", help="install environments, and measure nothing")
    add("--again", action="store_true", help="measure rows that are in the file")
    add("--check", action="store_true", help="make the calls of the file again, and compare")
    add("--reproduce", action="store_true", help="run the reproducers of findings only")
    add("--cpu", default="", metavar="MODEL", help="reproduce on this processor, by qemu-x86_64")
    add("--seconds", type=float, default=SECONDS, help="time limit of a row or a reproducer")
    add("--time", type=float, default=TIME, help="time limit of the calls of a row")
    add("--output", type=Path, default=OUTPUT, help="the JSON file")
    add("--row", help=argparse.SUPPRESS)
    add("--earlier", type=Path, help=argparse.SUPPRESS)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the packages of the list."""
    arguments = parser().parse_args(argv)
    packages = read_list()
    norms = chosen_norms(packages, arguments.only)
    if arguments.row:
        norm = next(each for each in chosen_norms(packages, []) if each.name == arguments.row)
        rows = read_results(arguments.earlier)["rows"] if arguments.earlier else ()
        without = next((each.get("without") for each in rows if each["name"] == norm.name), None)
        python = python_for(norm.package.peer)
        strict_json.write(judge_norm(norm, python, arguments.time, without), arguments.output)
        return 0
    if arguments.list:
        for norm in norms:
            print(f"{' '.join(norm.package.requirements)}: {norm.name}")
        return 0
    if arguments.install:
        for package in dict.fromkeys(norm.package.name for norm in norms):
            peer = next(each.peer for each in packages if each.name == package)
            try:
                python_for(peer)
                print(f"{package}: installed", flush=True)
            except subprocess.CalledProcessError:
                print(f"{package}: did not install", flush=True)
        return 0
    if arguments.reproduce:
        results = run_all(arguments.only, arguments.seconds, arguments.cpu)
        return 0 if all(each.shown for each in results) else 1
    order = [norm.name for norm in chosen_norms(packages, [])]
    limits = Limits(arguments.seconds, arguments.time)
    if not arguments.check:
        rows = measure(norms, order, arguments.output, limits, again=arguments.again)
        print(f"measured: {cost(rows)}")
        print(f"in {arguments.output.name}: {cost(read_results(arguments.output)['rows'])}")
        return 0
    with TemporaryDirectory() as folder:
        output, earlier = Path(folder, "world.json"), arguments.output
        rows = measure(norms, order, output, limits, again=True, earlier=earlier)
    names = {each["name"] for each in rows}
    published = [each for each in read_results(arguments.output)["rows"] if each["name"] in names]
    changed = differences(published, json.loads(strict_json.dumps(rows)))
    print("\n".join(changed) or f"{len(rows)} rows have the same outcomes, grades and verdicts")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
