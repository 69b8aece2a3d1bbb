"""Saved tensors: both formats give the same case, and what cannot be used is said."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.cases.families import EPS
from truenorm.verify.types import FORMATS, Array, dtype_of, same_bits
from verify.own.kernels import subject

CODES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


def activations(dtype: str = "float32", shape: tuple[int, ...] = (2, 30, 48)) -> dict[str, Array]:
    """Return what a model could have saved: a few channels are far from the others."""
    random = np.random.default_rng(3)
    x = random.normal(size=shape)
    x[..., 5] += 30
    arrays = {
        "hidden_states": x,
        "weight": 1 + 0.1 * random.normal(size=shape[-1]),
        "bias": 0.1 * random.normal(size=shape[-1]),
        "grad": 1e-3 * random.normal(size=shape),
    }
    return {name: array.astype(dtype_of(dtype)) for name, array in arrays.items()}


def save_npz(path: Path, arrays: Mapping[str, Array], **said: Any) -> Path:
    """Write as `truenorm vectors` does: bfloat16 as bits, and a note of the type."""
    stored: dict[str, Any] = {
        name: array.view(np.uint16) if array.dtype.name == "bfloat16" else array
        for name, array in arrays.items()
    }
    np.savez(path, **stored, **said)
    return path


def save_safetensors(path: Path, arrays: Mapping[str, Array], metadata: Any = None) -> Path:
    """Write the format as its specification has it."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, array in arrays.items():
        raw = array.tobytes()
        header[name] = {
            "dtype": CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return save_raw(path, header, data)


def save_raw(path: Path, header: Any, data: bytes) -> Path:
    said = json.dumps(header).encode()
    path.write_bytes(len(said).to_bytes(8, "little") + said + data)
    return path


@pytest.mark.parametrize("dtype", FORMATS)
def test_both_formats_give_the_same_case(dtype: str, tmp_path: Path) -> None:
    arrays = activations(dtype)
    npz = tv.load_data(save_npz(tmp_path / "a b.npz", arrays, eps=0.25, dtype=np.array(dtype)))
    other = tv.load_data(save_safetensors(tmp_path / "a.safetensors", arrays, {"eps": "0.25"}))
    assert npz.name == f"{dtype}-own-a-b-2x30x48"
    for case in (npz, other):
        assert case.shape == (60, 48)
        assert case.eps == 0.25
        assert case.dtype == dtype
        for mine, theirs in (
            (case.x, arrays["hidden_states"].reshape(60, 48)),
            (case.gamma, arrays["weight"]),
            (case.beta, arrays["bias"]),
            (case.dy, arrays["grad"].reshape(60, 48)),
        ):
            assert same_bits(mine, theirs)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_kernel_that_is_wrong_on_these_rows_is_found(
    dtype: str, ending: str, tmp_path: Path
) -> None:
    arrays = activations(dtype)
    if ending == "npz":
        path = save_npz(tmp_path / "rows.npz", arrays, dtype=np.array(dtype))
    else:
        path = save_safetensors(tmp_path / "rows.safetensors", arrays)
    case = tv.load_data(path)
    tv.check(subject(dtype=dtype), case, require="faithful")

    def change(found: dict[str, Array]) -> None:
        if "dx" in found:
            found["dx"][-2:, 6] = 0

    with pytest.raises(AssertionError, match=rf"your data, rows.{ending}\): dx\[5[89], 6\] is 0"):
        tv.check(subject(dtype=dtype, change=change), case)


def test_what_is_missing_is_filled_in(tmp_path: Path) -> None:
    """As the judge's own cases have it, and the same each time; what is unknown is passed over."""
    x = activations()["hidden_states"]
    path = save_npz(tmp_path / "x.npz", {"x": x, "attention": x, "odd": np.arange(3)})
    operation = tv.norm("add_rms_norm", gain="zero-centred", parameters="float64")
    one, two = (tv.load_data(path, operation=operation) for _ in range(2))
    assert one.eps == EPS
    assert list(one.inputs) == ["x", "residual", "gamma", "dy", "dsum"]
    for name, array in one.inputs.items():
        other = two.inputs[name]
        assert array is not None
        assert other is not None
        assert np.array_equal(array, other)
        assert np.ptp(array) > 0
    assert one.gamma.dtype == np.float64
    assert abs(np.median(one.gamma)) < 0.5  # 1 is added to it
    tv.check(subject(operation), one)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": np.ones(4)}, "there is no x, nor input nor hidden_states; there is y"),
        ({"x": np.ones((2, 4)), "input": np.ones((2, 4))}, "x and input are both there"),
        ({"x": np.ones((2, 4), int)}, "x is int64; it is one of float16"),
        ({"x": np.ones((0, 4))}, r"x has the shape \(0, 4\)"),
        ({"x": np.ones((2, 4)), "weight": np.ones(5)}, r"gamma has the shape \(5,\); .* \(4,\)"),
        ({"x": np.ones((2, 4)), "dy": np.ones((4, 2))}, r"dy has the shape \(4, 2\); x asks for"),
        (
            {"x": np.ones((2, 4)), "weight": np.ones(4, np.float32)},
            "gamma is float32, and should be float64; the operation's parameters=float32",
        ),
        ({"x": np.array([[1.0, np.nan]])}, r"x\[0, 1\] is nan: there are bounds for finite"),
        ({"x": np.array([[1.0, 1e200]])}, r"x\[0, 1\] is 1e\+200"),
        ({"x": np.ones((2, 4)), "eps": np.array(-1.0)}, "eps is -1.0; it is a number from 0 on"),
        ({"x": np.ones((2, 4)), "eps": np.array(0.0)}, "row 0 of x is constant, and eps is 0"),
    ],
)
def test_what_cannot_be_used_is_said(arrays: dict[str, Array], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        tv.load_data(save_npz(tmp_path / "mine.npz", arrays))
    assert "mine.npz" in str(refused.value)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ([1], "its header is no JSON"),
        ({"x": 3}, "x is not described as a tensor is"),
        ({"x": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}}, "x is I8; known are F16"),
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]}}, "not where its header"),
        ({"x": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "not where its header"),
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, "not where its header"),
        ({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, r"\[3\] in F32 has 8"),
        ({"x": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, "not where"),
    ],
)
def test_no_header_is_taken_on_trust(header: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        tv.load_data(save_raw(tmp_path / "a.safetensors", header, bytes(8)))


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 20, b"\x02" + bytes(7) + b"{"])
def test_what_is_no_file_of_the_format_is_said(content: bytes, tmp_path: Path) -> None:
    for ending in ("npz", "safetensors"):
        path = tmp_path / f"a.{ending}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"a\.{ending}.* is no "):
            tv.load_data(path)


def test_pickles_and_other_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}], object))
    for name, said in (
        ("a.npz", "without pickle"),
        ("a.pt", "it ends in .npz or .safetensors"),
        ("none.npz", "cannot read .*none.npz: No such file"),
        ("none.safetensors", "cannot read .*none.safetensors: No such file"),
    ):
        with pytest.raises(ValueError, match=said):
            tv.load_data(tmp_path / name)
