"""Run the commands that docs/judge/verify.md shows, and write what they print into the page.

``python -m benchmarks.transcripts [NAME ...]``. Tests compare the page with what is printed now,
except for numbers, which depend on the machine and on the version of NumPy.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import DOCS, ROOT, fill_page

PAGE = DOCS / "judge" / "verify.md"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
CHECKS_SHOWN = 2


class Transcript(NamedTuple):
    """A command in a folder, with variables before it as in a shell, and what must be built."""

    command: str
    folder: str = "examples/verify"
    build: str = ""


TRANSCRIPTS = {
    "numpy": Transcript("truenorm verify numpy_check.py:subject"),
    "pytorch": Transcript(
        "truenorm verify torch:torch.nn.functional.rms_norm --operation rms_norm"
    ),
    "triton": Transcript("TRITON_INTERPRET=1 truenorm verify triton_check.py --dtype float16"),
    "c": Transcript("truenorm verify c_kernel_check.py:subject", "examples/c", "make"),
}


def run(name: str) -> str:
    """Return what a command prints, shortened; it runs in a copy of its folder."""
    transcript = TRANSCRIPTS[name]
    with tempfile.TemporaryDirectory() as copies:
        folder = Path(copies).resolve() / transcript.folder
        shutil.copytree(ROOT / transcript.folder, folder)
        text = _run(transcript, folder)
        return shortened(text.replace(str(Path(copies).resolve()), "…"))


def _run(transcript: Transcript, folder: Path) -> str:
    if transcript.build:
        subprocess.run([transcript.build], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    words = shlex.split(transcript.command)
    variables = dict(word.split("=") for word in words if word.isupper() or "=" in word)
    arguments = words[words.index("truenorm") + 1 :]
    done = subprocess.run(
        [sys.executable, "-m", "truenorm", *arguments],
        cwd=folder,
        env=os.environ | variables | {"COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{transcript.command} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def shortened(text: str) -> str:
    """Return a report with the first finding and the first checks; ``…`` stands for the others."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    end = max(place for place, line in enumerate(lines) if line.startswith(("PASS", "FAIL")))
    grades = next(place for place, line in enumerate(lines) if re.match(r" +max +natural", line))
    checks = [place for place in range(grades, end) if lines[place][:1] in ("✓", "✗", "-")]
    lines[checks[CHECKS_SHOWN] : end] = ["…", ""]
    rules = [place for place in range(grades) if lines[place].startswith("-----")]
    if len(rules) > 1 and grades - rules[1] > 2:
        lines[rules[1] + 1 : grades] = ["", "…", ""]
    return "\n".join(lines)


def masked(text: str) -> str:
    """Return a transcript without numbers and without line breaks, which depend on them."""
    return " ".join(NUMBER.sub("#", text).replace("# min # s", "# s").split())


def shown(name: str) -> str:
    """Return the transcript in the page."""
    page = PAGE.read_text(encoding="utf-8")
    block = page.partition(f"<!-- begin transcript {name} -->")[2]
    return block.partition("```text\n")[2].partition("\n```")[0]


def main(argv: Sequence[str] | None = None) -> None:
    """Run some commands, or all, and write their transcripts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transcripts", description=__doc__ and __doc__.partition("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRANSCRIPTS))
    for name in parser.parse_args(argv).names or TRANSCRIPTS:
        command = TRANSCRIPTS[name].command
        block = f"```console\n$ {command}\n```\n\n```text\n{run(name)}\n```"
        fill_page(PAGE, {f"transcript {name}": block})
        sys.stderr.write(f"wrote the transcript of {command}\n")


if __name__ == "__main__":
    main()
