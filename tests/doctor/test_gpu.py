"""``doctor --gpu``: the report without a device, and the detection of wrong bits."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from truenorm import doctor
from truenorm.api import backends
from truenorm.doctor import (
    CUDA_NEEDS,
    DIFFERENT,
    INSTALL,
    Card,
    Line,
    Section,
    by_cuda,
    by_opencl,
    devices,
    examine,
)

USABLE = {status.name: status.usable for status in tn.backends()}["gpu"]


def card(put: Any = lambda array: array, *, is_gpu: bool = False) -> Card:
    """Return a stand-in for a device, with NumPy arrays."""
    return Card(
        interface="none",
        is_gpu=is_gpu,
        types=("float16", "float32"),
        facts=(Line("none", "NumPy"),),
        put=put,
        get=lambda array: array,
        copy=np.copy,
        wait=lambda: None,
    )


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that examines a card on small arrays."""
    for name, value in {"FEWER_ELEMENTS": 2**11, "ELEMENTS": 2**14, "SIZES": (5, 64)}.items():
        monkeypatch.setattr(doctor, name, value)
    monkeypatch.setattr(doctor, "COMPARED", 256)
    monkeypatch.setattr(doctor, "FEWER_SIZES", (64,))
    monkeypatch.setattr(doctor, "by_cuda", lambda: Line("CUDA", CUDA_NEEDS))
    monkeypatch.setenv("TRUENORM_BACKEND", "reference")

    def examined(card: Card) -> list[Section]:
        monkeypatch.setattr(doctor, "by_opencl", lambda: card)
        return devices()

    return examined


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says why and what to install; nothing else is examined."""
    missing = backends.BackendStatus("gpu", False, "needs pyopencl")
    monkeypatch.setattr(backends, "backends", lambda: [*tn.backends()[:2], missing])
    monkeypatch.setitem(sys.modules, "cupy", None)
    diagnosis = examine(gpu=True)
    (problem,) = diagnosis.problems
    assert problem == Line("OpenCL", "no device: needs pyopencl", INSTALL)
    assert diagnosis.sections[-1].lines == (problem, Line("CUDA", CUDA_NEEDS))
    assert "Self-test" not in [section.title for section in diagnosis.sections]
    assert diagnosis.as_dict()["gpu"] is True


def test_right_bits_and_times(examined: Any) -> None:
    device, bits, speed = examined(card())
    assert [line.name for line in device.lines] == ["none", "CUDA"]
    work = "1,216 numbers, both norms, forward and backward, D = 64"
    assert [line.value for line in bits.lines] == [f"correct to the bit ({work})"] * 2
    assert speed.lines[0].value == "this is no GPU, and these are no times of one"
    assert [line.name for line in speed.lines[1:]] == ["float32, 1024"]
    assert "GB/s" in speed.lines[1].value
    assert not [*bits.problems, *speed.problems]


def test_a_gpu_has_more_to_do(examined: Any) -> None:
    _, bits, speed = examined(card(is_gpu=True))
    assert all(line.value.endswith("D = 5, 64)") for line in bits.lines)
    assert [line.name for line in speed.lines] == [f"float32, {n}" for n in (1024, 4096, 16384)]


def test_one_wrong_bit_is_detected(examined: Any) -> None:
    def put(array: Any) -> Any:
        changed = np.copy(array)
        if changed.ndim == 1:  # of gamma, or beta
            changed[-1] = np.nextafter(changed[-1], changed.dtype.type(9))
        return changed

    _, bits, _ = examined(card(put))
    assert [line.remedy for line in bits.problems] == [DIFFERENT] * 2
    assert all(line.value.startswith("WRONG: ") for line in bits.lines)


def test_a_driver_that_fails(examined: Any) -> None:
    def put(_: Any) -> Any:
        raise RuntimeError("out of memory")

    _, bits, speed = examined(card(put))
    for problem in (*bits.problems, *speed.problems):
        assert problem.value == "FAILED: RuntimeError: out of memory"
    assert len(bits.problems) == 2
    assert len(speed.problems) == 1


class TestCuda:
    """A stand-in for CuPy with the functions that are called."""

    def install(self, monkeypatch: pytest.MonkeyPatch, properties: Any) -> None:
        runtime = SimpleNamespace(
            getDeviceProperties=properties,
            driverGetVersion=lambda: 13010,
            deviceSynchronize=lambda: None,
        )
        cupy = SimpleNamespace(
            cuda=SimpleNamespace(runtime=runtime),
            asarray=np.asarray,
            asnumpy=np.asarray,
            __spec__=SimpleNamespace(),
        )
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setitem(sys.modules, "cuda", cupy)

    def test_a_card(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.install(
            monkeypatch,
            lambda _: {"name": b"H100", "multiProcessorCount": 132, "totalGlobalMem": 80 * 10**9},
        )
        device = by_cuda()
        assert isinstance(device, Card)
        assert [line.value for line in device.facts] == [
            "H100, experimental",
            "of CUDA 13.1",
            "132, 80.0 GB",
        ]

    def test_no_card(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_: int) -> None:
            raise RuntimeError("no driver")

        self.install(monkeypatch, refuse)
        assert by_cuda() == Line("CUDA", "no card: RuntimeError: no driver")


@pytest.mark.skipif(
    not (USABLE or os.environ.get("TRUENORM_NEEDS_GPU")), reason="there is no device"
)
class TestOnADevice:
    def test_facts(self) -> None:
        device = by_opencl()
        assert isinstance(device, Card)
        assert [line.name for line in device.facts] == ["OpenCL", "driver", "version", "units"]
        x = np.arange(6, dtype=np.float32)
        assert device.get(device.copy(device.put(x))).tolist() == x.tolist()
        device.wait()

    @pytest.mark.slow
    def test_right_bits(self) -> None:
        diagnosis = examine(gpu=True)
        assert not diagnosis.problems
        sections = {section.title: section for section in diagnosis.sections}
        assert len(sections["Bits, OpenCL"].lines) == 3
        assert "Speed, OpenCL" in sections
