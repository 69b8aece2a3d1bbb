"""What is compiled ahead is all that calls need; and where it would be in vain it is not tried."""

import sys
from itertools import product
from pathlib import Path
from threading import Lock

import pytest

pytest.importorskip("numba")

from programs import run_python
from truenorm.kernels.fused import compiling
from truenorm.verify.types import FORMATS
from truenorm.warmup import warm_up

# Calls of the tests of the promise, whose data know nothing of ours: every family, shape, eps and
# type of parameter, what is not finite, results beside a midpoint, and several threads.
CALLS = """
import sys
from itertools import chain
from promise.families import DTYPES, usual_case
from promise.hard_cases import OUTPUTS, RMS_OUTPUTS, hard_cases
from promise.hard_cases.kept import some_kept
from promise.judging import both_passes
from promise.suites import cases, not_finite_cases
from truenorm.kernels.fused.compiling import TALLY

(dtype,) = (each for each in DTYPES if each.name == sys.argv[1])
norm = sys.argv[2]

def make_calls():
    some = chain(
        cases(dtype, 14_000),
        not_finite_cases(dtype, 8, (1, 7), (5, 67)),
        [usual_case("normal", 1200, 257, dtype)],
    )
    if norm == "rms_norm":
        hard = (hard_cases(output, dtype, 50, centred=False) for output in RMS_OUTPUTS)
        some = (case.of_rms_norm() for case in some)
    else:
        hard = (some_kept(output, dtype, 50) for output in OUTPUTS)
    for case in chain(some, *hard):
        for rounding in ("correct", "fast"):
            both_passes(case, "fused", rounding, threads=3)
"""
NOTHING_MORE = """
from truenorm.warmup import warm_up

warm_up([sys.argv[1]], operation=norm)
before = sum(TALLY.values())
make_calls()
print(before > 0, sum(TALLY.values()) - before)
"""
NOTHING_COMPILED = """
make_calls()
print(TALLY["loaded"] > 0, TALLY["compiled"])
"""

WAYS = ("forward", "backward")
NAMES = {"float16", "float32", "float64"}


@pytest.mark.parametrize(
    ("norm", "dtype"),
    [
        pytest.param(norm, name, marks=() if name in gated else pytest.mark.slow)
        # One type shows that the data are RMSNorm's too.
        for norm, gated in (
            ("layer_norm", {"float32", "float64"}),
            ("rms_norm", {"float32"}),
        )
        for name in FORMATS
    ],
)
def test_no_call_needs_more(norm: str, dtype: str) -> None:
    """Neither compiled nor loaded: whatever there is was met, whether it is kept or not."""
    (printed,) = run_python(CALLS + NOTHING_MORE, dtype, norm)
    assert printed.split() == ["True", "0"]


@pytest.mark.slow
def test_the_next_process_compiles_nothing(tmp_path: Path) -> None:
    warm = "from truenorm.cli import main; main()"
    place = str(tmp_path / "kept")
    printed = run_python(warm, "warmup", "--dtype", "float32", TRUENORM_CACHE_DIR=place)
    assert f"Kept for the next process: {place}" in printed[-1]
    calls = CALLS + NOTHING_COMPILED
    assert run_python(calls, "float32", "layer_norm", TRUENORM_CACHE_DIR=place) == ["True 0"]


def test_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, str]] = []
    steps = warm_up(["float64"], progress=lambda *given: told.append(given)).steps
    names = [f"float64, {mode}, {way}" for mode in ("correct", "fast") for way in WAYS]
    assert told == [(done, 4, name) for done, name in enumerate(names)]
    found = [", ".join((step.dtype, step.rounding, step.direction)) for step in steps]
    assert found == names
    assert all(step.seconds > 0 for step in steps)
    monkeypatch.setenv("TRUENORM_ROUNDING", "fast")
    assert {step.rounding for step in warm_up(["float64"]).steps} == {"fast"}


def test_both_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each makes its own calls, and is named."""
    monkeypatch.setenv("TRUENORM_ROUNDING", "fast")
    told: list[tuple[int, int, str]] = []
    norms = ("layer_norm", "rms_norm")
    steps = warm_up(["float64"], operation=norms, progress=lambda *given: told.append(given)).steps
    names = [f"{norm}, float64, fast, {way}" for norm in norms for way in WAYS]
    assert [each[-1] for each in told] == names
    assert [(step.operation, step.direction) for step in steps] == list(product(norms, WAYS))
    (*_, one) = warm_up(["float64"], operation="rms_norm").steps
    assert one.operation == "rms_norm"


def test_nobody_is_told_what_they_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    untold = Lock()
    monkeypatch.setattr("truenorm.warmup.passes.FIRST_TO_TELL", untold)
    warm_up(["float64"])
    assert untold.locked()
    warm_up(["float64"])  # nor does it wait for what is never given back


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TRUENORM_BACKEND", "reference", "is reference, which compiles nothing: unset it"),
        ("TRUENORM_BACKEND", "abacus", "must be None or one of"),
        ("TRUENORM_ROUNDING", "slow", "choose 'correct' or 'fast'"),
    ],
)
def test_variables(monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=words):
        warm_up(["float64"])


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    with pytest.raises(ValueError, match="NUMBA_DISABLE_JIT is set"):
        warm_up()


def test_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be used here is left out, unless it is asked for."""
    monkeypatch.setattr("truenorm.warmup.passes.all_kinds", lambda *_: [])
    assert {step.dtype for step in warm_up().steps} == {*NAMES, "bfloat16"}
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    report = warm_up()
    assert {step.dtype for step in report.steps} == NAMES
    (note,) = report.notes
    assert note.startswith("bfloat16 is left out: bfloat16 needs the package ml_dtypes")
    assert warm_up(["float32"]).notes == ()
    for missing in ("bfloat16", "float8"):
        with pytest.raises(ValueError, match=missing):
            warm_up([missing])


class TestWhereItIsKept:
    @pytest.fixture(autouse=True)
    def no_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("truenorm.warmup.passes.all_kinds", lambda *_: [])

    def test_a_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / "place"))
        report = warm_up(["float32"])
        folder = tmp_path / "place" / compiling.IMPORTED
        assert (report.folder, report.functions, report.why_not) == (folder, 0, "")
        (folder / "kernel").touch()
        assert warm_up(["float32"]).functions == 1
        assert report.as_dict()["folder"] == str(folder)

    def test_nowhere(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / "file"))
        report = warm_up(["float32"])
        assert (report.folder, report.functions) == (None, 0)
        assert str(tmp_path / "file") in report.why_not
        assert report.as_dict()["folder"] is None
