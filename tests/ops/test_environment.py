"""Variables that override arguments, and arithmetic that is not IEEE's."""

import ctypes
import ctypes.util
import platform
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ops.judged import MODES, assert_same_bits, read_only

X = read_only(np.random.default_rng(0).standard_normal((50, 257)).astype(np.float32) + 1)


class TestVariables:
    def test_rounding(self, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Saved says which mode it was."""
        for mode in MODES:
            monkeypatch.setenv("TRUENORM_ROUNDING", mode)
            for given in MODES:
                y, saved = tn.layer_norm_forward(X, rounding=given, backend=backend)
                assert saved.settings.rounding == mode
                assert_same_bits((tn.layer_norm(X, rounding=given, backend=backend),), (y,))

    def test_backward_uses_the_mode_of_forward(
        self, backend: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for mode, other in (MODES, MODES[::-1]):
            monkeypatch.delenv("TRUENORM_ROUNDING", raising=False)
            _, saved = tn.layer_norm_forward(X, X[0], rounding=mode, backend=backend)
            right = tn.layer_norm_backward(X, saved, backend=backend)
            monkeypatch.setenv("TRUENORM_ROUNDING", other)
            result = tn.layer_norm_backward(X, saved, backend=backend)
            assert_same_bits((None, *result), (None, *right))

    def test_empty_is_not_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in ("TRUENORM_ROUNDING", "TRUENORM_BACKEND", "TRUENORM_THREADS"):
            monkeypatch.setenv(variable, "")
        tn.layer_norm(X)

    @pytest.mark.parametrize(
        ("variable", "value", "words"),
        [
            (
                "TRUENORM_ROUNDING",
                "up",
                "^TRUENORM_ROUNDING is set to 'up': rounding is 'up': choose 'correct' or 'fast'",
            ),
            (
                "TRUENORM_BACKEND",
                "abacus",
                r"^TRUENORM_BACKEND is set to 'abacus': backend must be None or one of \[",
            ),
            (
                "TRUENORM_THREADS",
                "some",
                "TRUENORM_THREADS must be an integer of at least 1, got 'some'",
            ),
            (
                "TRUENORM_THREADS",
                "0",
                "TRUENORM_THREADS must be an integer of at least 1, got '0'",
            ),
        ],
    )
    def test_wrong_values(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
    ) -> None:
        _, saved = tn.layer_norm_forward(X)
        monkeypatch.setenv(variable, value)
        with pytest.raises(ValueError, match=words):
            tn.layer_norm(X, rounding="fast", backend="reference", threads=1)
        if variable != "TRUENORM_ROUNDING":
            with pytest.raises(ValueError, match=words):
                tn.layer_norm_backward(X, saved, backend="reference", threads=1)

    def test_they_override_wrong_arguments(
        self, backend: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRUENORM_BACKEND", backend)
        monkeypatch.setenv("TRUENORM_THREADS", "2")
        monkeypatch.setenv("TRUENORM_ROUNDING", "correct")
        y = tn.layer_norm(X, backend="abacus", threads=0, rounding="up")
        monkeypatch.undo()
        assert_same_bits((y,), (tn.layer_norm(X, backend=backend),))


GLIBC = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
FLUSH_TO_ZERO, DENORMALS_ARE_ZERO = 0x8000, 0x0040
ROUND_DOWN, ROUND_UP, ROUND_TO_ZERO = 0x2000, 0x4000, 0x6000


@contextmanager
def control_bits(mask: int) -> Iterator[None]:
    """Set bits of MXCSR, which are the last four bytes of glibc's fenv_t on x86-64."""
    libm: Any = ctypes.CDLL("libm.so.6")
    before = ctypes.create_string_buffer(32)
    assert libm.fegetenv(before) == 0
    (register,) = struct.unpack_from("<I", before.raw, 28)
    changed = ctypes.create_string_buffer(before.raw[:28] + struct.pack("<I", register | mask), 32)
    try:
        assert libm.fesetenv(changed) == 0
        yield
    finally:
        assert libm.fesetenv(before) == 0


@pytest.mark.skipif(
    not (GLIBC and platform.machine() == "x86_64"), reason="sets the register as glibc does"
)
class TestArithmetic:
    @pytest.mark.parametrize(
        ("mask", "words"),
        [
            (FLUSH_TO_ZERO, "flushes subnormal numbers to zero"),
            (DENORMALS_ARE_ZERO, "flushes subnormal numbers to zero"),
            (FLUSH_TO_ZERO | DENORMALS_ARE_ZERO, "flushes subnormal numbers to zero"),
            (ROUND_DOWN, "does not round to nearest"),
            (ROUND_UP, "does not round to nearest"),
            (ROUND_TO_ZERO, "does not round to nearest"),
        ],
    )
    def test_detected(self, backend: str, rounding: str, mask: int, words: str) -> None:
        """The words say who usually does that and how to undo it."""
        _, saved = tn.layer_norm_forward(X, rounding=rounding, backend=backend)
        undo = r"torch.set_flush_denormal\(False\)" if "flush" in words else "FE_TONEAREST"
        match = f"this thread {words}, so results would be wrong.*{undo}"
        with control_bits(mask):
            with pytest.raises(RuntimeError, match=match):
                tn.layer_norm(X, rounding=rounding, backend=backend)
            with pytest.raises(RuntimeError, match=match):
                tn.layer_norm_forward(X, rounding=rounding, backend=backend)
            with pytest.raises(RuntimeError, match=match):
                tn.layer_norm_backward(X, saved, backend=backend)
        tn.layer_norm(X, rounding=rounding, backend=backend)

    def test_fesetround(self, backend: str) -> None:
        libm: Any = ctypes.CDLL("libm.so.6")
        to_nearest, upward = 0, 0x800
        try:
            assert libm.fesetround(upward) == 0
            with pytest.raises(RuntimeError, match="Something called fesetround"):
                tn.layer_norm(X, backend=backend)
        finally:
            assert libm.fesetround(to_nearest) == 0
        tn.layer_norm(X, backend=backend)
