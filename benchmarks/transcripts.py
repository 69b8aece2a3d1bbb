"""Run the commands that README and pages show, and write what they print into the pages.

``python -m benchmarks.transcripts [NAME ...]``. A page whose name ends in ``.svg`` is a picture of
the terminal. Tests compare pages and pictures with what is printed now, except for numbers, which
depend on the machine and on the version of NumPy.
"""

import argparse
import html
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from benchmarks.common import DOCS, ROOT, fill_page

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
CHECKS_SHOWN = 2
COLUMNS = {".md": 80, ".svg": 54}
"""A picture is narrow, so that its text can be read on a telephone."""
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
SVG_TEXT = re.compile(r'<text [^>]*y="([^"]*)" textLength[^>]*>([^<]*)')


def shortened(text: str) -> str:
    """Return a report with the first finding and the first checks; ``…`` stands for the others."""
    lines = text.splitlines()
    end = max(place for place, line in enumerate(lines) if line.startswith(("PASS", "FAIL")))
    grades = next(place for place, line in enumerate(lines) if re.match(r" +max +natural", line))
    checks = [place for place in range(grades, end) if lines[place][:1] in ("✓", "✗", "-")]
    lines[checks[CHECKS_SHOWN] : end] = ["…", ""]
    rules = [place for place in range(grades) if lines[place].startswith("-----")]
    if len(rules) > 1 and grades - rules[1] > 2:
        lines[rules[1] + 1 : grades] = ["", "…", ""]
    return "\n".join(lines)


def whole(text: str) -> str:
    """Return the text as it is."""
    return text


def paragraphs(start: int, end: int | None = None) -> Callable[[str], str]:
    """Return a function that selects paragraphs of a text."""
    return lambda text: "\n\n".join(text.split("\n\n")[start:end])


def ends(first: int, last: int) -> Callable[[str], str]:
    """Return a function that selects paragraphs from both ends; ``…`` stands for the others."""

    def select(text: str) -> str:
        parts = text.split("\n\n")
        return "\n\n".join([*parts[:first], "…", *parts[-last:]])

    return select


def finding_and_verdict(text: str) -> str:
    """Return the headline, the first finding without its reproducer, and the last line."""
    head, verdict, finding, *_, last = text.split("\n\n")
    finding = finding.partition("----")[0].rpartition("\n")[0]
    return "\n\n".join([head.partition("date ")[0].rpartition("\n")[0], verdict, finding, last])


class Transcript(NamedTuple):
    """The output of the last of some commands in a folder, or a part of it.

    A command may have variables before it, as in a shell. `build` is run first. Tests that compare
    the page run where PyTorch is, if the command needs it, and only when slow, if it is slow.
    """

    commands: str
    folder: str = "examples/verify"
    build: str = ""
    page: str = "judge/verify.md"
    select: Callable[[str], str] = shortened
    with_commands: bool = True
    needs_torch: bool = False
    slow: bool = False


def _part_of_fail(start: int, end: int | None = None) -> Transcript:
    return Transcript(
        "truenorm verify rms_norm_check.py",
        page="judge/read-a-fail.md",
        select=paragraphs(start, end),
        with_commands=start == 0,
    )


def _from_scratch(page: str) -> Transcript:
    command = "python from_scratch.py"
    return Transcript(command, "examples", page=page, select=whole, with_commands=False)


NUMPY = "truenorm verify numpy_check.py:subject"
TRANSCRIPTS = {
    "scratch": _from_scratch("learn/index.md"),
    "scratch front": _from_scratch("../README.md"),
    "numpy": Transcript(NUMPY),
    "picture": Transcript(NUMPY, page="figures/fail.svg", select=finding_and_verdict),
    "pytorch": Transcript(
        "truenorm verify torch:torch.nn.functional.rms_norm --operation rms_norm",
        needs_torch=True,
    ),
    "triton": Transcript(
        "TRITON_INTERPRET=1 truenorm verify triton_check.py --dtype float16", needs_torch=True
    ),
    "fused judged": Transcript(
        "TRITON_INTERPRET=1 truenorm verify triton_layer_norm.py --dtype float32",
        page="learn/fuse.md",
        needs_torch=True,
        slow=True,
    ),
    "fused bytes": Transcript(
        "TRITON_INTERPRET=1 python count_bytes.py",
        page="learn/fuse.md",
        select=whole,
        needs_torch=True,
    ),
    "bits recipes": Transcript(
        "truenorm compare serving_check.py:train serving_check.py:pinned",
        page="judge/bits.md",
        select=ends(2, 2),
        needs_torch=True,
    ),
    "bits residual": Transcript(
        "truenorm compare serving_check.py:add_train serving_check.py:add_serve",
        page="judge/bits.md",
        select=ends(2, 1),
        needs_torch=True,
    ),
    "bits batch": Transcript(
        "truenorm verify serving_check.py:serve",
        page="judge/bits.md",
        select=paragraphs(0, 3),
        needs_torch=True,
    ),
    "quantized": Transcript(
        "truenorm verify quantized_check.py --recipe late/T",
        page="judge/quantized.md",
        select=paragraphs(0, 6),
        needs_torch=True,
    ),
    "quantized triton": Transcript(
        'TRITON_INTERPRET=1 truenorm verify triton_quantized_check.py --recipe "late/T, divide"',
        page="judge/quantized.md",
        select=paragraphs(1, 5),
        needs_torch=True,
    ),
    "c": Transcript("truenorm verify c_kernel_check.py:subject", "examples/c", "make", slow=True),
    "fail verdict": _part_of_fail(0, 2),
    "fail finding": _part_of_fail(2, 3),
    "fail check": _part_of_fail(3, 4),
    "fail followers": _part_of_fail(4, 6),
    "fail grades": _part_of_fail(6, 7),
    "fail beyond": _part_of_fail(7, 8),
    "fail recipe": _part_of_fail(8, 9),
    "fail checks": _part_of_fail(9, 10),
    "fail end": _part_of_fail(10),
    "grades": Transcript(NUMPY, page="reference/grades.md", select=paragraphs(5, 7)),
    "baseline": Transcript(
        f"{NUMPY} --baseline known.json --update-baseline\n{NUMPY} --baseline known.json",
        page="judge/ci.md",
        select=paragraphs(1, 3),
        slow=True,
    ),
    "equal": Transcript(
        "truenorm compare numpy_check.py numpy_check.py:mended",
        page="judge/ci.md",
        select=ends(2, 3),
        slow=True,
    ),
}


def run(name: str) -> str:
    """Return what a page shows of the output of a command, with colours for a picture."""
    transcript = TRANSCRIPTS[name]
    kind = Path(transcript.page).suffix
    text = _output(transcript.commands, transcript.folder, transcript.build, kind)
    return transcript.select(text)


@cache
def _output(commands: str, folder: str, build: str, kind: str) -> str:
    """Return what the last command prints, in a copy of its folder."""
    with tempfile.TemporaryDirectory() as copies:
        place = Path(copies).resolve() / folder
        shutil.copytree(ROOT / folder, place)
        if build:
            subprocess.run([build], cwd=place, check=True, stdout=subprocess.DEVNULL)
        variables = {"COLUMNS": str(COLUMNS[kind])}
        if kind == ".svg":
            variables |= {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
        text = [_run(command, place, variables) for command in commands.splitlines()][-1]
    text = text.replace(str(Path(copies).resolve()), "…").strip("\n")
    return "\n".join(line.rstrip() for line in text.splitlines())


def _run(command: str, folder: Path, variables: Mapping[str, str]) -> str:
    words = shlex.split(command)
    start = next(place for place, word in enumerate(words) if word in ("truenorm", "python"))
    variables = {**variables, **dict(word.split("=") for word in words[:start])}
    module = ["-m", "truenorm"] if words[start] == "truenorm" else []
    done = subprocess.run(
        [sys.executable, *module, *words[start + 1 :]],
        cwd=folder,
        env=os.environ | variables | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def draw(command: str, text: str) -> str:
    """Return a picture of the terminal, as SVG."""
    console = Console(record=True, file=io.StringIO(), width=COLUMNS[".svg"])
    console.print(Text.from_ansi(text))
    # No fonts from elsewhere: each text has its width, so any monospaced font fits.
    return FONT.sub("", console.export_svg(title=command, unique_id="terminal"))


def masked(text: str) -> str:
    """Return a transcript without colours, numbers and white space, which depends on numbers."""
    text = Text.from_ansi(text).plain
    return "".join(NUMBER.sub("#", text).replace("# min # s", "# s").split())


def shown(name: str) -> str:
    """Return the transcript in its page."""
    page = (DOCS / TRANSCRIPTS[name].page).read_text(encoding="utf-8")
    if TRANSCRIPTS[name].page.endswith(".svg"):
        lines: dict[str, str] = {}
        for height, words in re.findall(
            r'<text [^>]*x="[^"]*" y="([^"]*)" textL[^>]*>([^<]*)', page
        ):
            lines[height] = lines.get(height, "") + html.unescape(words)
        return "\n".join(lines.values())
    block = page.partition(f"<!-- begin transcript {name} -->")[2]
    return block.partition("```text\n")[2].partition("\n```")[0]


def main(argv: Sequence[str] | None = None) -> None:
    """Run some commands, or all, and write their transcripts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transcripts", description=__doc__ and __doc__.partition("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRANSCRIPTS))
    for name in parser.parse_args(argv).names or TRANSCRIPTS:
        transcript = TRANSCRIPTS[name]
        if transcript.page.endswith(".svg"):
            picture = draw(transcript.commands, run(name))
            (DOCS / transcript.page).write_text(picture, encoding="utf-8")
            continue
        block = f"```text\n{run(name)}\n```"
        if transcript.with_commands:
            commands = "\n".join(f"$ {each}" for each in transcript.commands.splitlines())
            block = f"```console\n{commands}\n```\n\n{block}"
        fill_page(DOCS / transcript.page, {f"transcript {name}": block})
        sys.stderr.write(f"wrote the transcript {name!r} of {transcript.page}\n")


if __name__ == "__main__":
    main()
