"""Settings: environment variables, the choice of a backend, logging, and non-IEEE arithmetic."""

import ctypes
import ctypes.util
import logging
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isfunction
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.api.helpers import MODES, assert_same_bits, read_only
from shared.programs import run_python
from truenorm.api import backends, settings

X = read_only(np.random.default_rng(0).standard_normal((50, 257)).astype(np.float32) + 1)


class TestVariables:
    def test_rounding(self, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The saved state has the mode."""
        for mode in MODES:
            monkeypatch.setenv("TRUENORM_ROUNDING", mode)
            for argument in MODES:
                y, saved = tn.layer_norm_forward(X, rounding=argument, backend=backend)
                assert saved.settings.rounding == mode
                assert_same_bits((tn.layer_norm(X, rounding=argument, backend=backend),), (y,))

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
            ("TRUENORM_ROUNDING", "up",
                "^TRUENORM_ROUNDING is set to 'up': rounding must be 'correct' or 'fast'"),
            ("TRUENORM_BACKEND", "abacus",
                r"^TRUENORM_BACKEND is set to 'abacus': backend must be None or one of \["),
            ("TRUENORM_THREADS", "some",
                "TRUENORM_THREADS must be an integer from 1 to 2147483647, got 'some'"),
            ("TRUENORM_THREADS", "0",
                "TRUENORM_THREADS must be an integer from 1 to 2147483647, got '0'"),
            *(
                (
                    "TRUENORM_THREADS",
                    "9" * digits,
                    "TRUENORM_THREADS must be an integer from 1 to 2147483647, got '9",
                )
                for digits in (25, 5000)  # Python converts 4300
            ),
        ],
    )  # fmt: skip
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


ROUND_NOTHING = {
    "backends",
    # Compare results of functions of the caller.
    *("dot_test", "gradcheck", "gradcheck_steps", "taylor_test"),
    # Integers and bytes.
    *(f"PartialGradients.{name}" for name in ("extent", "from_words", "to_words", "tobytes")),
}
"""Public functions that promise no bits, or round nothing."""
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


ON_GLIBC = pytest.mark.skipif(
    not (GLIBC and platform.machine() == "x86_64"), reason="sets the register as glibc does"
)


@ON_GLIBC
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
        """The message names the usual cause and the remedy."""
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

    @pytest.mark.parametrize("mask", [FLUSH_TO_ZERO, ROUND_UP])
    def test_every_function_that_rounds(self, mask: int) -> None:
        x = X[:3]
        saved, rms_saved = tn.layer_norm_forward(x)[1], tn.rms_norm_forward(x)[1]
        partial = tn.layer_norm_backward_partial(x, saved)[1]
        rounds: dict[str, Callable[[], Any]] = {
            "layer_norm": lambda: tn.layer_norm(x),
            "layer_norm_backward": lambda: tn.layer_norm_backward(x, saved),
            "layer_norm_backward_partial": lambda: tn.layer_norm_backward_partial(x, saved),
            "layer_norm_forward": lambda: tn.layer_norm_forward(x),
            "rms_norm": lambda: tn.rms_norm(x),
            "rms_norm_backward": lambda: tn.rms_norm_backward(x, rms_saved),
            "rms_norm_backward_partial": lambda: tn.rms_norm_backward_partial(x, rms_saved),
            "rms_norm_forward": lambda: tn.rms_norm_forward(x),
            "PartialGradients.refine": lambda: partial.refine([(x, saved)]),
            "PartialGradients.rounded": partial.rounded,
        }
        functions = {name for name in tn.__all__ if isfunction(getattr(tn, name))}
        for each in (tn.PartialGradients, tn.Saved):
            methods = vars(each).items()
            functions |= {
                f"{each.__name__}.{name}" for name, value in methods if isfunction(value)
            }
        public = {name for name in functions if "._" not in name}
        assert public - set(rounds) == ROUND_NOTHING
        for name, function in rounds.items():
            with control_bits(mask), pytest.raises(RuntimeError, match="results would be wrong"):
                function()
            assert function() is not None, name


SMALL = np.arange(6.0).reshape(2, 3)


@pytest.fixture
def no_cached_choice() -> Iterator[None]:
    caches = (backends._automatic, settings._cached, settings._cached_backward)
    for function in caches:
        function.cache_clear()
    yield
    for function in caches:
        function.cache_clear()


def test_backends_have_a_status_and_a_reason() -> None:
    statuses = tn.backends()
    names = [status.name for status in statuses]
    assert "reference" in names
    assert len(set(names)) == len(names)
    for name, usable, reason in statuses:
        assert isinstance(name, str)
        assert isinstance(usable, bool)
        assert reason
    assert dict(zip(names, statuses, strict=True))["reference"].usable


def test_former_name_of_a_backend() -> None:
    words = (
        "^backend 'fused' was replaced by 'native', the C core: use backend='native' "
        "or leave it out$"
    )
    with pytest.raises(ValueError, match=words):
        tn.layer_norm(SMALL, backend="fused")
    _, saved = tn.layer_norm_forward(SMALL)
    with pytest.raises(ValueError, match=words):
        tn.layer_norm_backward(SMALL, saved, backend="fused")


@pytest.mark.usefixtures("no_cached_choice")
class TestChoosing:
    def test_the_first_usable_one(self) -> None:
        first = next(status.name for status in tn.backends() if status.usable)
        assert backends.backend_named(None).name == first

    def test_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "truenorm"):
            for _ in range(3):
                _, saved = tn.layer_norm_forward(SMALL)
                tn.layer_norm_backward(SMALL, saved)
        first = next(status for status in tn.backends() if status.usable)
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("truenorm", logging.INFO)
        assert repr(first.name) in record.getMessage()
        assert first.reason in record.getMessage()

    def test_asking_for_one_logs_nothing(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with caplog.at_level(logging.DEBUG, "truenorm"):
            tn.layer_norm(SMALL, backend="reference")
            monkeypatch.setenv("TRUENORM_BACKEND", "reference")
            tn.layer_norm(SMALL)
        assert not caplog.records


class TestLogging:
    """The reference backend logs that large float64 calls are slow."""

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    def test_one_line_a_call(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, rounding: str
    ) -> None:
        monkeypatch.setattr("truenorm.kernels.reference.backend.LARGE", 5)
        with caplog.at_level(logging.INFO, "truenorm"):
            _, saved = tn.layer_norm_forward(SMALL, rounding=rounding, backend="reference")
            assert len(caplog.records) == 1
            tn.layer_norm_backward(SMALL, saved, backend="reference")
            assert len(caplog.records) == 2
        for record in caplog.records:
            assert (record.name, record.levelno) == ("truenorm", logging.INFO)
            assert record.getMessage().startswith("6 float64 elements")


def test_import_configures_no_logging() -> None:
    code = """
        import logging, truenorm as tn, numpy as np
        tn.layer_norm(np.eye(3))
        root, ours = logging.getLogger(), logging.getLogger('truenorm')
        others = [h for h in ours.handlers if not isinstance(h, logging.NullHandler)]
        print(root.handlers, root.level, ours.level, others, ours.propagate)
    """
    assert run_python(code) == ["[] 30 0 [] True"]
