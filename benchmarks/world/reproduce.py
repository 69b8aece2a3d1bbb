"""Run the reproducers of findings, each with its package and NumPy alone.

A package chooses its kernels by the instructions of the processor. QEMU runs a script on a model
of another processor, such as Haswell-v4, which has AVX2 and no AVX-512: there the package runs the
kernels that a user of that processor has.
"""

import os
import subprocess
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.environments import python_for
from benchmarks.world.listed import FOLDER, Finding, Package, read_findings, read_list

EMULATOR = "qemu-x86_64"
SCRIPTS = FOLDER / "reproducers"


class Reproduced(NamedTuple):
    """What a reproducer printed, and whether it showed what it is about."""

    finding: Finding
    shown: bool
    output: str


def run(finding: Finding, package: Package, seconds: float, cpu: str = "") -> Reproduced:
    """Run a reproducer in the environment of its package, without truenorm.

    With `cpu`, it runs on this model of a processor.
    """
    # -I: neither PYTHONPATH nor the folder of the script is searched.
    command = [str(python_for(package.peer)), "-I", str(SCRIPTS / finding.reproducer)]
    if cpu:
        command = [EMULATOR, "-cpu", cpu, *command]
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command, cwd=folder, env=variables | dict(package.variables), timeout=seconds,
                capture_output=True, encoding="utf-8", check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Reproduced(finding, False, f"no answer within {seconds:g} s")
    if done.returncode:
        return Reproduced(finding, False, f"{done.stdout}{done.stderr}")
    return Reproduced(finding, True, done.stdout)


def run_all(only: Sequence[str], seconds: float, cpu: str = "") -> list[Reproduced]:
    """Run the reproducers of all findings, or of the packages in `only`: see `run`.

    Print what they print, then the list of what ran.
    """
    packages = {each.name: each for each in read_list()}
    results = []
    for finding in read_findings():
        if not only or finding.package in only:
            result = run(finding, packages[finding.package], seconds, cpu)
            results.append(result)
            print(f"{finding.title}: {in_words(result)}\n{result.output}", flush=True)
    where = f" on {cpu}, emulated" if cpu else ""
    print(f"{sum(each.shown for each in results)} of {len(results)} reproducers{where}:")
    for each in results:
        versions = ", ".join(packages[each.finding.package].requirements)
        print(f"- {each.finding.reproducer} ({versions}): {in_words(each)}")
    return results


def in_words(result: Reproduced) -> str:
    """Return the outcome of a reproducer."""
    return "reproduced" if result.shown else "NOT REPRODUCED"
