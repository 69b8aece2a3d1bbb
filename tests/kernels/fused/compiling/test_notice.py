"""Who waits for a compiler is told so, once; nobody else is."""

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from programs import run_on_terminal
from truenorm.kernels.fused import compiling
from truenorm.kernels.fused.compiling import kernel
from truenorm.kernels.fused.first_call.notice import SECONDS

TEXT = (
    f"truenorm: compiling kernels for float32, once; about {SECONDS} s. "
    'Run "truenorm warmup" to do it ahead'
)
LINE = f"{TEXT}; TRUENORM_QUIET=1 silences this.\n"


def first(x: Any, _y: Any) -> Any:
    return x


def call(dtype: Any = np.float32) -> None:
    """Compile, or load, a kernel that knows of no other, as in a new process."""
    assert kernel(first)(np.ones(1), np.ones(1, dtype))[0] == 1


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Begin anew: nothing is kept, and nobody was told."""
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / "place"))
    monkeypatch.delenv("TRUENORM_QUIET", raising=False)
    monkeypatch.setattr(compiling, "FIRST_TO_TELL", threading.Lock())
    return tmp_path / "place"


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    # Of the class: the test gets another stream than its fixtures.
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True)
    return capsys


class TestOnATerminal:
    def test_once(self, terminal: Any) -> None:
        for dtype in (np.float32, np.int16, np.float64):
            call(dtype)
        assert terminal.readouterr() == ("", LINE)

    @pytest.mark.parametrize(
        ("held", "name"),
        [
            (np.int16, " for float16"),
            (np.uint16, " for bfloat16"),
            (np.float64, " for float64"),
        ],
    )
    def test_the_type(self, terminal: Any, held: Any, name: str) -> None:
        call(held)
        assert terminal.readouterr().err == LINE.replace(" for float32", name)

    def test_no_type(self, terminal: Any) -> None:
        assert kernel(first)(1, 2) == 1
        assert terminal.readouterr().err == LINE.replace(" for float32", "")

    @pytest.mark.usefixtures("terminal")
    def test_before_it_begins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[int] = []
        function: Any = kernel(first)

        def write(_text: str) -> int:
            written.append(len(function.signatures))
            return 0

        monkeypatch.setattr(sys.stderr, "write", write)
        function(1, 2)
        assert (written, len(function.signatures)) == ([0], 1)

    def test_not_where_it_is_loaded(self, terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        call()
        terminal.readouterr()
        monkeypatch.setattr(compiling, "FIRST_TO_TELL", threading.Lock())
        call()
        assert terminal.readouterr().err == ""
        call(np.float64)
        assert terminal.readouterr().err != ""

    @pytest.mark.parametrize(("value", "is_told"), [("1", False), ("0", True), ("", True)])
    def test_quiet(
        self, terminal: Any, monkeypatch: pytest.MonkeyPatch, value: str, is_told: bool
    ) -> None:
        monkeypatch.setenv("TRUENORM_QUIET", value)
        call()
        assert terminal.readouterr().err == (LINE if is_told else "")

    def test_nothing_can_be_kept(self, terminal: Any, place: Path) -> None:
        """Then it is not done once."""
        place.touch()
        call()
        said = terminal.readouterr().err
        assert "for float32, as every process will; about" in said
        assert '"truenorm doctor" says why nothing can be kept; TRUENORM_QUIET=1' in said
        assert "warmup" not in said


class TestElsewhere:
    def test_in_a_pipe(self, capsys: pytest.CaptureFixture[str]) -> None:
        call()
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize("quiet", ["", "1"])
    def test_by_logging(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, quiet: str
    ) -> None:
        """Who listens hears it, and need not be told how to silence a line."""
        monkeypatch.setenv("TRUENORM_QUIET", quiet)
        with caplog.at_level(logging.INFO, "truenorm"):
            for dtype in (np.float32, np.float64):
                call(dtype)
        assert caplog.record_tuples == [("truenorm", logging.INFO, TEXT)]
        assert logging.getLogger("truenorm").handlers == []

    @pytest.mark.parametrize("stream", [None, "closed"])
    def test_no_stream(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str | None
    ) -> None:
        file = (tmp_path / "closed").open("w")
        file.close()
        monkeypatch.setattr(sys, "stderr", stream and file)
        call()

    def test_many_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[Any] = []
        together = threading.Barrier(8)

        def tell(signature: Any, _folder: Any) -> None:
            told.append(signature)
            threading.Event().wait(0.1)

        def load(_: int) -> Any:
            together.wait()
            return compiling._Kept(first, {}).load_overload("types", None)

        monkeypatch.setattr(compiling, "tell", tell)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(load, range(8))) == [None] * 8
        assert told == ["types"]


PROGRAM = """
import numpy as np
from truenorm.kernels.fused.compiling import kernel

@kernel
def first(x):
    return x[0]

print(first(np.ones(1, np.float32)), first(np.ones(1)))
"""


@pytest.mark.slow
def test_a_real_terminal(place: Path) -> None:
    """As new processes see it: told the first time, and never again."""
    told = [run_on_terminal(PROGRAM) for _ in range(2)]
    assert told == [("1.0 1.0\n", LINE), ("1.0 1.0\n", "")]
    elsewhere = {"TRUENORM_CACHE_DIR": str(place / "elsewhere"), "TRUENORM_QUIET": "1"}
    assert run_on_terminal(PROGRAM, **elsewhere) == ("1.0 1.0\n", "")


STOPPED = """
import sys, ml_dtypes, numpy as np, truenorm as tn
from truenorm.kernels.fused import compiling

def tell_and_stop(signature, folder, tell=compiling.tell):
    tell(signature, folder)
    raise SystemExit

compiling.tell = tell_and_stop
tn.layer_norm(np.ones((2, 3), sys.argv[1]), backend="fused")
"""


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_real_call(dtype: str) -> None:
    """The first kernel it needs takes the data themselves, and so names their type."""
    assert run_on_terminal(STOPPED, dtype) == ("", LINE.replace("float32", dtype))
