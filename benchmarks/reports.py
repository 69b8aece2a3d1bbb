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
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.common import DOCS, fill_page
from benchmarks.environments import VARIABLES, python_for
from benchmarks.world.listed import Package, read_list

FOLDER = DOCS / "reports"


class Reported(NamedTuple):
    """The package that a report is about, and the modules that its reproducer imports."""

    name: str
    modules: tuple[str, ...]

    @property
    def package(self) -> Package:
        """The package in the list, with its environment."""
        return next(each for each in read_list() if each.name == self.name)

    @property
    def version(self) -> str:
        """The version in the list."""
        pinned = dict(each.split("==") for each in self.package.requirements)
        (version,) = (pinned[each] for each in pinned if each.partition("[")[0] == self.name)
        return version


REPORTS = {
    "jax-standardize": Reported("jax", ("jax",)),
    "mlx-sums": Reported("mlx", ("mlx.core",)),
    "opencv-layer-norm": Reported("opencv-python-headless", ("cv2", "onnx.helper")),
    "paddle-layer-norm": Reported("paddlepaddle", ("paddle",)),
    "pytorch-layer-norm": Reported("torch", ("torch",)),
    "tract-layer-norm": Reported("tract", ("onnx", "tract")),
}
"""By the name of its page."""
# By AVX-512, XLA gives zeros for a row for which it gives NaN by AVX2.
SAME_INSTRUCTIONS = {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}


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
    with TemporaryDirectory() as folder:  # a reproducer may write a model
        return subprocess.check_output(command, cwd=folder, env=variables, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Run some reproducers, or all, and write their output."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reports", description=__doc__ and __doc__.partition("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(REPORTS))
    for name in parser.parse_args(argv).names or REPORTS:
        output = run(name, python_for(REPORTS[name].package.peer))
        fill_page(FOLDER / f"{name}.md", {"output": f"```text\n{output}```"})
        sys.stderr.write(f"wrote the output in {name}.md\n")


if __name__ == "__main__":
    main()
