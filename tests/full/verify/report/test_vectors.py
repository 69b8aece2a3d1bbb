"""Test vectors: the bytes of the files, and folders and names that are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from truenorm.verify.operation import Case
from truenorm.verify.operations import OUTPUTS, layer_norm_case
from truenorm.verify.oracle import Expected, expected
from truenorm.verify.report import vectors
from truenorm.verify.report.vectors import write_vectors
from truenorm.verify.running.command import _from_little_endian, little_endian
from truenorm.verify.types import FORMATS, Array, dtype_of

EPS = float(np.float32(1e-5))
# As a reader without our code would name them: bfloat16 has no name in NumPy, only its bits.
RAW = {"float16": "<f2", "bfloat16": "<u2", "float32": "<f4", "float64": "<f8"}


def made_case(name: str = "plain", dtype: str = "float32", rows: int = 3, d: int = 5) -> Case:
    random = np.random.default_rng(7)
    x, gamma, beta, dy = (
        random.standard_normal(shape).astype(dtype_of(dtype))
        for shape in ((rows, d), (d,), (d,), (rows, d))
    )
    return layer_norm_case(name, (x, gamma, beta, dy), EPS)


def bits(array: Array) -> list[int]:
    unsigned = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return [int(each) for each in unsigned.ravel()]


@pytest.mark.parametrize("dtype", FORMATS)
def test_files_hold_inputs_results_and_bounds(tmp_path: Path, dtype: str) -> None:
    case = made_case(dtype=dtype)
    summary = write_vectors(tmp_path / "new" / "folder", [case])
    folder = Path(summary["folder"])
    assert (folder / "manifest.txt").read_text() == (
        f"truenorm-vectors 1\nplain {dtype} 3 5 0x1.4f8b580000000p-17\n"
    )
    raw = RAW[dtype]
    inputs = np.fromfile(folder / "plain.in", raw)
    arrays = [array for array in case.inputs.values() if array is not None]
    assert bits(inputs) == [bit for array in arrays for bit in bits(array)]
    answer = expected(case)
    written = np.fromfile(folder / "plain.expected", raw)
    values = [value for value in answer.values.values() if value is not None]
    assert bits(written) == [bit for value in values for bit in bits(value)]
    bound = np.fromfile(folder / "plain.bound", "<f8")
    assert bound.tolist() == np.concatenate([answer.allowed(o).ravel() for o in OUTPUTS]).tolist()
    assert summary["cases"] == 1
    assert summary["bytes"] == sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("dtype", FORMATS)
def test_archive_needs_neither_pickle_nor_other_packages(tmp_path: Path, dtype: str) -> None:
    case = made_case(dtype=dtype)
    write_vectors(tmp_path, [case])
    stored = "uint16" if dtype == "bfloat16" else dtype
    with np.load(tmp_path / "plain.npz", allow_pickle=False) as archive:
        assert str(archive["dtype"]) == dtype
        assert float(archive["eps"]) == case.eps
        assert bits(archive["x"]) == bits(case.x)
        for name in ("x", "dy", "y", "dx", "gamma", "beta", "dgamma", "dbeta"):
            shape = (5,) if name.endswith("a") else (3, 5)
            assert (archive[name].shape, archive[name].dtype.name) == (shape, stored)
            if name in OUTPUTS:
                bound = archive[f"bound_{name}"]
                assert (bound.shape, bound.dtype.name) == (shape, "float64")


def test_non_finite_results_have_no_bound(tmp_path: Path) -> None:
    case = made_case()
    x = case.x.copy()
    x[1, 2] = np.nan
    write_vectors(tmp_path, [case.with_inputs(x=x)])
    expected = np.fromfile(tmp_path / "plain.expected", "<f4")
    bound = np.fromfile(tmp_path / "plain.bound", "<f8")
    finite = np.isfinite(expected)
    assert 0 < finite.sum() < len(expected)
    assert (bound[~finite] == 0).all()
    assert (bound[finite] > 0).all()


def test_cases_of_another_form_are_skipped(tmp_path: Path) -> None:
    case = made_case()
    others = [
        replace(case.with_inputs(gamma=None), name="no-gamma"),
        replace(case.with_inputs(beta=None), name="no-beta"),
        replace(case, name="strided", layout="strided"),
        replace(case.with_inputs(gamma=case.gamma.astype(np.float64)), name="two-types"),
    ]
    summary = write_vectors(tmp_path, [*others, case])
    assert (summary["cases"], summary["skipped"]) == (1, 4)
    assert {path.stem for path in tmp_path.iterdir()} == {"manifest", "README", "plain"}


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    existing = tmp_path / "thesis.txt"
    existing.write_text("ten years of work")
    with pytest.raises(FileExistsError, match="is not empty: name a new folder"):
        write_vectors(tmp_path, [made_case()])
    with pytest.raises(FileExistsError, match="is a file: name a new folder"):
        write_vectors(existing, [made_case()])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert existing.read_text() == "ten years of work"


@pytest.mark.parametrize("name", ["", "a b", "../up", "a/b", "a\\b", "a\n", "é", "x" * 101])
def test_invalid_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be written to a manifest"):
        write_vectors(tmp_path / "new", [made_case(name)])
    with pytest.raises(ValueError, match="two cases are named 'Plain'"):
        write_vectors(tmp_path / "new", [made_case("plain"), made_case("Plain")])
    assert not (tmp_path / "new").exists()


def test_manifest_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted run leaves no manifest."""

    def breaks_off(case: Case) -> Expected:
        if case.name == "second":
            raise KeyboardInterrupt
        return expected(case)

    monkeypatch.setattr(vectors, "expected", breaks_off)
    steps: list[tuple[int, int, str]] = []
    with pytest.raises(KeyboardInterrupt):
        write_vectors(
            tmp_path, [made_case("first"), made_case("second")], lambda *n: steps.append(n)
        )
    assert steps == [(0, 2, "first"), (1, 2, "second")]
    assert (tmp_path / "first.expected").exists()
    assert not (tmp_path / "manifest.txt").exists()


@pytest.mark.parametrize("dtype", FORMATS)
def test_bytes_round_trip(dtype: str) -> None:
    numbers = np.array([1.0, -0.0, np.inf, np.nan, 3e-5]).astype(dtype_of(dtype))
    assert bits(_from_little_endian(little_endian(numbers), dtype)) == bits(numbers)
    strided = np.stack([numbers, numbers], axis=1)[:, 0]
    assert little_endian(strided) == little_endian(numbers)
