"""Files of ``--data`` whose headers lie, or whose bytes are damaged, are a ValueError."""

import io
import os
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.types import Array

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
MOST_BYTES = 4_000_000
"""Far below every size that a header claims here, and above what reading a small file takes."""


def npy(header: str, data: bytes = b"") -> bytes:
    """Return a file of the format .npy with any header."""
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def npz(path: Path, content: bytes, kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("x.npy", content)
    return path


def header(shape: Any, descr: Any = "<f4") -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}\n"


HEADERS = {
    "elements": header((2**62,)),
    "product": header((2**40, 2**40)),
    "digits": header((10**30,)),
    "bytes": header((2**61, 4), "<f8"),
    "one more": header((5, 8)),
    "one fewer": header((3, 8)),
    "negative": header((-4, 8)),
    "two negative": header((-4, -8)),
    "negative and huge": header((-(10**30), 8)),
    "zero and huge": header((0, 10**30)),
    "axes": header((1,) * 70 + (32,)),
    "float": header((4.0, 8)),
    "text": header("'4'"),
    "none": header(None),
    "nested": header("(" * 50 + "32" + ",)" * 50),
    "signs": header("-" * 9000 + "1"),
    "type": header((4, 8), "<f1000000000"),
    "no type": header((32,), ""),
    "a type of no bytes": header((10**18,), "|V0"),
    "fields": header((4,), [("a", "<f4", (8,))]),
    "huge fields": header((4,), [("a", "<f4", (2**40,))]),
    "odd fields": header((4,), [()]),
    "objects": header((4, 8), "|O"),
    "keys": "{'descr': '<f4'}\n",
    "other text": "hello\n",
    "no text": "",
}


def check_refused(path: Path) -> str:
    """Load a file; check that it is a ValueError that names the file, without much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=path.name) as refused:
            tv.load_data(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    return str(refused.value)


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("name", HEADERS)
def test_a_header_must_agree_with_the_bytes(name: str, kind: int, tmp_path: Path) -> None:
    check_refused(npz(tmp_path / "a.npz", npy(HEADERS[name], X.tobytes()), kind))


def test_the_message_has_both_sizes(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", npy(header((5, 8)), X.tobytes()))
    assert "x of shape (5, 8) in float32 must have 160 bytes, got 128" in check_refused(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_sizes_of_the_archive_are_claims_too(kind: int, tmp_path: Path) -> None:
    """The directory of the archive claims the 4 GB that the shape has; there are 128 bytes."""
    content = npy(header((2**30 - 64,)), X.tobytes())
    claimed = (len(content) - X.nbytes + 4 * (2**30 - 64)).to_bytes(4, "little")
    path = npz(tmp_path / "a.npz", content, kind)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")  # the entry of the directory: sizes are 20 and 24 bytes on
    for places in ((24,), (20, 24)):
        for place in places:
            data[at + place : at + place + 4] = claimed
        path.write_bytes(data)
        check_refused(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_without_a_limit_are_refused(kind: int, tmp_path: Path) -> None:
    assert "np.savez" in check_refused(npz(tmp_path / "a.npz", npy(header((4, 8))), kind))


def damaged(content: bytes) -> Iterator[bytes]:
    """Yield a file with one other byte, for each byte, and the file cut off there."""
    for at in range(len(content)):
        byte = (0xFF, 0x28, content[at] ^ 1)[at % 3]
        yield content[:at] + bytes([byte]) + content[at + 1 :]
        yield content[:at]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_any_damage_of_an_npz_is_a_value_error(save: Any, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    save(buffer, x=X[:1], eps=np.float64(0.5))
    check_damages(buffer.getvalue(), tmp_path / "a.npz")


def test_any_damage_of_safetensors_is_a_value_error(tmp_path: Path) -> None:
    text = (
        b'{"__metadata__":{"eps":"0.5"},"x":{"dtype":"F32","shape":[1,8],"data_offsets":[0,32]}}'
    )
    content = len(text).to_bytes(8, "little") + text + X[:1].tobytes()
    check_damages(content, tmp_path / "a.safetensors")


def check_damages(content: bytes, path: Path) -> None:
    messages = []
    for each in damaged(content):
        path.write_bytes(each)
        try:
            tv.load_data(path)
        except ValueError as error:
            messages.append(str(error))
    assert all(path.name in each for each in messages)
    assert len(messages) > len(content)


def arrays_of(path: Path) -> dict[str, Array]:
    inputs = tv.load_data(path).inputs
    return {name: array for name, array in inputs.items() if array is not None}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_both_orders_and_endings(save: Any, tmp_path: Path) -> None:
    whole = np.stack([X, 2 * X])
    for x in (whole, np.asfortranarray(whole), whole.astype(">f4"), whole[:, ::-1]):
        save(tmp_path / "a.npz", x=x)
        loaded = arrays_of(tmp_path / "a.npz")["x"]
        assert loaded.dtype == np.float32
        assert np.array_equal(loaded, x.astype(np.float32).reshape(-1, 8))
        assert loaded.dtype.isnative


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_pipes_and_devices_are_not_read(ending: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"pipe.{ending}")
    (tmp_path / f"zeros.{ending}").symlink_to("/dev/zero")
    for name in ("pipe", "zeros"):
        with pytest.raises(ValueError, match=rf"cannot read .*{name}.*no regular file"):
            tv.load_data(tmp_path / f"{name}.{ending}")


def test_links_to_files_are_read(tmp_path: Path) -> None:
    """Caches of models consist of links."""
    np.savez(tmp_path / "blob.npz", x=X)
    (tmp_path / "a.npz").symlink_to("blob.npz")
    assert np.array_equal(arrays_of(tmp_path / "a.npz")["x"], X)
