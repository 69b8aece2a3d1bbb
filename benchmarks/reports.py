"""Run the reproducers of docs/reports by the package of each, and write the output into the pages.

``python -m benchmarks.reports [NAME ...]``. A test compares the pages with the output, where the
package is installed.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import DOCS, fill_page
from benchmarks.environments import PEERS, VARIABLES, python_for

FOLDER = DOCS / "reports"
REPORTS = {"jax-standardize": "jax", "pytorch-layer-norm": "torch"}
"""The page of each report, and the package that it is about."""
# By AVX-512, XLA gives zeros for a row for which it gives NaN by AVX2.
SAME_INSTRUCTIONS = {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}


def version(package: str) -> str:
    """Return the version that the benchmarks install."""
    named = dict(each.split("==") for each in PEERS[package].requirements)
    return named[package]


def block(name: str, language: str) -> str:
    """Return the only block of code of a report in a language; empty if there is none."""
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if len(blocks) > 1:
        raise ValueError(f"expected one block of {language} in {name}.md, got {len(blocks)}")
    return "".join(blocks)


def run(name: str, python: str | Path) -> str:
    """Return what the reproducer of a report prints; it sees the package and NumPy only."""
    command = [str(python), "-I", "-c", block(name, "python")]
    variables = os.environ | VARIABLES | SAME_INSTRUCTIONS
    return subprocess.check_output(command, env=variables, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Run some reproducers, or all, and write their output."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reports", description=__doc__ and __doc__.partition("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(REPORTS))
    for name in parser.parse_args(argv).names or REPORTS:
        output = run(name, python_for(PEERS[REPORTS[name]]))
        fill_page(FOLDER / f"{name}.md", {"output": f"```text\n{output}```"})
        sys.stderr.write(f"wrote the output in {name}.md\n")


if __name__ == "__main__":
    main()
