"""What a subject is asked in a call of each kind, and a kernel that notes it in a file."""

import itertools
from pathlib import Path

import truenorm.verify as tv
from truenorm.verify.calls import KINDS, MANY, Call

KERNEL = """
import hashlib

def note(name, rows):
    array = rows.numpy() if hasattr(rows, "numpy") else rows
    place = hashlib.sha256(array.tobytes()).hexdigest()
    with open({log!r}, "a") as log:
        log.write(f"{{name}} {{len(rows)}} {{place}}\\n")

def forward(x, gamma, beta, eps):
    note("forward", x)
    return gamma * x + beta, x

def backward(dy, x):
    note("backward", dy)
    return dy * 2, (dy * x).sum(0), dy.sum(0)
"""
USUAL = "forward A4, backward A4"
ASKED = {
    "plain": USUAL,
    "again": USUAL,
    "alone": USUAL,
    "interleaved": "forward A4, forward B4, backward A4",
    "later": "forward A4, backward A4, forward B4, backward B4",
    "paused": USUAL,
    "twice": "forward A4, backward A4, backward A4",
    "after others": "forward A4, backward A4, forward B8, backward B8, forward C4, backward C4",
    "many": ", ".join([USUAL] * 3),
    "rows": "forward A2, backward A2",
    "reversed": USUAL,
    "zeros below": "forward A9, backward A9",
    "not finite below": "forward A7, backward A7",
    "idle below": "forward A8, backward A8",
    "idle among": "forward A8, backward A8",
    "strided gradients": USUAL,
    "padded gradients": USUAL,
    "transposed gradients": USUAL,
    "read-only gradients": USUAL,
    "tiled": "forward A3, backward A3",
    "large": "forward A3, backward A3",
    "large forward": "forward A3",
}
"""By kind of `call_of`: the passes, each with its rows, and a letter for their numbers."""


def four_rows() -> tv.Case:
    """Return the case of all calls."""
    return tv.case("float32-normal-4x5")


def call_of(kind: str) -> Call:
    """Return a call of a kind: of two rows, of three repeated rows, or of three repetitions."""
    how = KINDS[kind]
    if how.repeats_rows or kind == MANY:
        return Call(kind, 0, 3)
    return Call(kind, 1, 3) if kind == "rows" else Call(kind)


def asked(log: Path) -> str:
    """Return what a kernel noted, as in `ASKED`, and forget it."""
    letters = {"forward": dict[str, str](), "backward": dict[str, str]()}
    names = {name: map(chr, itertools.count(ord("A"))) for name in letters}
    passes = []
    for line in log.read_text(encoding="utf-8").splitlines():
        name, rows, place = line.split()
        if place not in letters[name]:
            letters[name][place] = next(names[name])
        passes.append(f"{name} {letters[name][place]}{rows}")
    log.write_text("", encoding="utf-8")
    return ", ".join(passes)
