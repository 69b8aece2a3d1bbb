"""The kernels of docs/learn/fuse.md and docs/judge/bits.md: bytes, gradients, bits.

Triton decides whether it interprets when it is imported, so its kernels run in other processes.
"""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import truenorm.verify as tv
from shared.programs import python

FOLDER = Path(__file__).parents[2] / "examples" / "verify"
SERVING = FOLDER / "serving_check.py"
COUNT = """
import json, sys
import count_bytes
def counts(shape):
    return [
        [
            [count_bytes.distinct(traffic.loads), cost.bytes_read],
            [count_bytes.distinct(traffic.stores), cost.bytes_written],
            [count_bytes.total(traffic.loads), count_bytes.total(traffic.stores)],
        ]
        for traffic, cost in count_bytes.count(shape).values()
    ]
print(json.dumps([counts(tuple(shape)) for shape in json.loads(sys.argv[1])]))
"""
CHECK = """
import sys
import truenorm.verify as tv
subject = tv.load("triton_layer_norm.py:subject")
for name in sys.argv[1:]:
    tv.check(subject, tv.case(name))
"""
LAUNCHES = """
import torch
import triton_layer_norm as kernels
random = torch.Generator().manual_seed(0)
for rows, size in ((4, 17), (700, 300), (2100, 5)):
    x, dy = torch.randn(2, rows, size, generator=random)
    gamma, beta = torch.randn(2, size, generator=random)
    _, *saved = kernels.forward(x, gamma, beta, 1e-5)
    one, two = (kernels.gradients(dy, *saved, one_launch=each) for each in (True, False))
    print(all(torch.equal(*pair) for pair in zip(one, two, strict=True)))
"""


def interpreted(program: str, *arguments: str, folder: Path = FOLDER) -> str:
    """Run a program in the folder of the examples, with the interpreter of Triton."""
    pytest.importorskip("triton")
    done = python("-c", program, *arguments, folder=folder, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bytes_are_those_of_the_model() -> None:
    """Rows of 1000 end inside a tile, and 40 rows inside a run."""
    shapes = [(64, 4096), (40, 1000), (16, 512)]
    results = json.loads(interpreted(COUNT, json.dumps(shapes)))
    for shape, passes in zip(shapes, results, strict=True):
        for (loaded, to_read), (stored, to_write), (loads, stores) in passes:
            assert loaded == to_read, shape
            assert stored == to_write == stores, shape
            assert loads >= loaded, shape


def test_a_load_of_another_array_is_counted(tmp_path: Path) -> None:
    """A backward pass that reads dy twice still moves it once; one that reads y moves more."""
    for name in ("triton_layer_norm.py", "count_bytes.py"):
        text = (FOLDER / name).read_text(encoding="utf-8")
        text = text.replace(
            "    result = gain * (centred * rstd) + shift",
            "    tl.load(y + row * size + column, mask=inside)\n"
            "    tl.load(x + row * size + column, mask=inside)\n"
            "    result = gain * (centred * rstd) + shift",
        )
        (tmp_path / name).write_text(text, encoding="utf-8")
    ((forward, _),) = json.loads(interpreted(COUNT, "[[8, 512]]", folder=tmp_path))
    (loaded, model), _, (loads, _) = forward
    assert loaded == model + 4 * 8 * 512
    assert loads >= loaded + 4 * 8 * 512


def test_triton_layer_norm_passes_small_cases() -> None:
    """The page shows the whole report; these cases name what breaks."""
    names = "float32-normal-4x3", "float32-normal-4x17", "float32-rows-256x5"
    interpreted(CHECK, *names)


def test_one_launch_and_two_return_the_same_bits() -> None:
    assert interpreted(LAUNCHES).split() == ["True"] * 3


def is_late(name: str, operation: str) -> bool:
    """Return True if a kernel of the page rounds once, as this operation does."""
    subject = tv.load(f"{SERVING}:{name}", operation)
    case = tv.case("bfloat16-normal-2x1024", operation=subject.operation)
    try:
        tv.check(subject, case, recipe="late")
    except AssertionError as error:
        if "not rounded as late requires" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize(("name", "operation", "late"), [
    ("train", "rms_norm", False),
    ("serve", "rms_norm", True),
    ("pinned", "rms_norm", True),
    ("add_train", "add_rms_norm", False),
    ("add_train", "add_rms_norm,sum=unrounded", True),
    ("add_serve", "add_rms_norm", True),
    ("add_serve", "add_rms_norm,sum=unrounded", False),
])  # fmt: skip
def test_recipes(name: str, operation: str, late: bool) -> None:
    assert is_late(name, operation) == late


@pytest.mark.parametrize(("name", "is_invariant"), [("serve", False), ("pinned", True)])
def test_batch_invariance(name: str, is_invariant: bool) -> None:
    """Each row has the bits that it has in a smaller batch, or not."""
    subject = tv.load(f"{SERVING}:{name}")
    assert subject.forward is not None
    case = tv.case("bfloat16-served-32x5120", operation=tv.RMS_NORM)
    few, many = case.tiled(7), case.tiled(8)  # 224 and 256 rows
    y, more = (subject.forward(each.x, each.gamma, each.eps) for each in (few, many))
    assert (y.tobytes() == more[: len(y)].tobytes()) == is_invariant
