"""The oracle: rounding of exact numbers, packed answers, and the cache of answers."""

import subprocess
import sys
import zipfile
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.answers import quick_cases
from truenorm import user_cache
from truenorm.verify import oracle
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import LAYER_NORM, OPERATIONS
from truenorm.verify.oracle import (
    ONE,
    AnswerKey,
    Arrays,
    LinearInRoot,
    compute_exact,
    expected,
    fingerprint,
    pack,
    round_exactly,
    unpack,
)
from truenorm.verify.suite import case
from truenorm.verify.types import FORMATS

BESIDE = Fraction(1, 1 << 200)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("power", [0, 2, -9])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("side", [1, -1], ids=["above", "below"])
def test_next_to_a_midpoint_at_a_power_of_two(
    dtype: str, power: int, sign: int, side: int
) -> None:
    """Below it numbers are twice as dense: a midpoint is only a quarter of its ulp away."""
    digits = FORMATS[dtype].precision - (1 if side > 0 else 0)
    top = Fraction(1 << 9 + power, 1 << 9)
    ends = top, top * (1 + side * Fraction(1, 1 << digits))
    # A tie goes to the power, which is even.
    for beside, nearest in ((-side, ends[0]), (0, ends[0]), (side, ends[1])):
        value = sign * ((ends[0] + ends[1]) / 2 + beside * BESIDE)
        number = LinearInRoot(ONE, 0, value.numerator, value.denominator)
        assert round_exactly([number], FORMATS[dtype])[0, 0] == sign * nearest


# Ties and zeros; non-finite values; predictions that overflow; results that underflow.
NAMES = ["exact-tie", "zeros", "nan-in-gamma", "infinity-in-x", "largest-numbers", "subnormal-x"]
PLAIN = "float32-normal-4x17"


def packed(some: Case) -> bytes:
    return pack(AnswerKey.of(some), some.operation.predictors, compute_exact(some))


def unpacked(some: Case, content: bytes) -> Arrays | None:
    return unpack(AnswerKey.of(some), some.operation.predictors, content)


def round_trips(some: Case) -> bool:
    found = unpacked(some, packed(some))
    return found is not None and fingerprint(found) == fingerprint(compute_exact(some))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_bit_round_trips(dtype: str, name: str) -> None:
    assert round_trips(case(f"{dtype}-{name}"))


@pytest.mark.parametrize("absent", ["gamma", "beta"])
def test_without_parameters(absent: str) -> None:
    some = case(PLAIN).with_inputs(**{absent: None})
    assert f"d{absent}" not in compute_exact(some)
    assert round_trips(some)


def test_packed_answers_are_small() -> None:
    """A few bits a number for narrow types; for float64 also the remainders."""
    for dtype, share in (("float32", 1 / 16), ("float64", 1 / 2)):
        some = case(f"{dtype}-normal-4x256")
        size = sum(array.nbytes for array in compute_exact(some).values())
        assert len(packed(some)) < share * size


def test_arbitrary_bits_are_packed_losslessly() -> None:
    """Also those that no rounding gives, and those without a predictor."""
    key = AnswerKey.of(case(PLAIN))
    random = np.random.default_rng(0)
    exact = {
        name: random.integers(0, 2**64, array.shape, np.uint64).view(np.float64)
        for name, array in (compute_exact(case(PLAIN)) | {"other": np.zeros((2, 3, 5))}).items()
    }
    for predictors in (case(PLAIN).operation.predictors, {}):
        found = unpack(key, predictors, pack(key, predictors, exact))
        assert found is not None
        assert fingerprint(found) == fingerprint(exact)


def test_damaged_content_is_rejected() -> None:
    some = case(PLAIN)
    content, right = packed(some), fingerprint(compute_exact(some))
    damaged = [b"", content[:20], content[:-1], content[:40], content[:32] + b"nothing"]
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        damaged.append(bytes(changed))
    for each in damaged:
        found = unpacked(some, each)
        assert found is None or fingerprint(found) == right


def test_content_of_another_key_is_rejected() -> None:
    for name in ("float32-normal-4x12", "float32-offset-1-4x67"):
        assert unpacked(case(name), packed(case(PLAIN))) is None


def test_another_prediction_is_rejected() -> None:
    """As on a CPU with other arithmetic."""
    some = case(PLAIN)
    others = {**some.operation.predictors, "y": lambda known: np.nextafter(known["x"], 9)}
    assert unpack(AnswerKey.of(some), others, packed(some)) is None


ROOM = 1_100_000
ROW = "float32-normal-4x67"
assert LAYER_NORM.folder is not None
FOLDER = LAYER_NORM.folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's cache folder, which does not exist yet; hide the package's answers."""
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / "place"))
    monkeypatch.setattr(oracle, "_quick", lambda *_: {})
    return tmp_path / "place"


class CountingCase:
    """A case whose exact numbers are loaded or computed; counts the computations."""

    def __init__(self, chosen: Case | None = None) -> None:
        self.case = chosen or case(ROW)
        self.right = fingerprint(compute_exact(self.case))
        self.times = 0

    def compute(self, chosen: Case) -> Arrays:
        self.times += 1
        return compute_exact(chosen)

    def load(self) -> int:
        """Load the numbers, check them, and return how often they were computed so far."""
        assert fingerprint(oracle.load_or_compute(self.case, self.compute)) == self.right
        return self.times


def shipped(operation: Operation) -> dict[str, bytes]:
    assert operation.folder is not None
    return oracle._quick(operation.folder, oracle.sources_of(operation))


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def test_answers_are_computed_once(place: Path) -> None:
    counting = CountingCase()
    assert [counting.load() for _ in range(3)] == [1, 1, 1]
    assert [file.name for file in files(place)] == [AnswerKey.of(counting.case).name]


def test_answers_to_seeded_cases_are_not_cached(place: Path) -> None:
    counting = CountingCase(case(f"{ROW}-12345"))
    assert [counting.load() for _ in range(2)] == [1, 2]
    assert files(place) == []


def test_another_process_reads_the_cache(place: Path) -> None:
    """Several at once, too; none leaves a partial file."""
    code = f"""
from truenorm.verify import oracle, suite
oracle._quick = lambda *_: {{}}
compute, times = oracle.compute_exact, []
oracle.compute_exact = lambda case: times.append(1) or compute(case)
oracle.expected(suite.case("{ROW}"))
print(len(times))
"""
    command = [sys.executable, "-W", "error", "-c", code]
    at_once = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert {process.communicate()[0].strip() for process in at_once} <= {"0", "1"}
    after = subprocess.run(command, capture_output=True, text=True, check=True)
    assert after.stdout.strip() == "0"
    assert len(files(place)) == 1


def test_a_damaged_file_is_replaced(place: Path) -> None:
    counting = CountingCase()
    counting.load()
    (file,) = files(place)
    whole = file.read_bytes()
    # The second has a valid checksum, and is not an answer.
    for damaged in (whole[:-9], sha256(b"something").digest() + b"something", b""):
        file.write_bytes(damaged)
        before = counting.times
        assert counting.load() == before + 1
        assert file.read_bytes() == whole


def test_without_a_cache_folder_answers_are_computed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.touch()
    counting = CountingCase()
    assert [counting.load(), counting.load()] == [1, 2]
    monkeypatch.setattr(user_cache, "_root", Mock(side_effect=RuntimeError("no home")))
    assert counting.load() == 3


def test_small_answers_are_not_cached(place: Path) -> None:
    counting = CountingCase(case("float32-normal-4x12"))
    assert [counting.load(), counting.load()] == [1, 2]
    assert not place.exists()


@pytest.mark.parametrize(("owner", "name", "value"), [
    (LAYER_NORM, "folder", None), (oracle, "sources", lambda *_: ""),
], ids=["of an operation that does not tell them", "in an archive"])  # fmt: skip
def test_without_sources_nothing_is_cached(
    place: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, value: object
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", Mock(side_effect=NotADirectoryError))
        assert oracle.sources.__wrapped__(FOLDER) == ""
    monkeypatch.setattr(owner, name, value)
    counting = CountingCase()
    assert [counting.load(), counting.load()] == [1, 2]
    assert not place.exists()


def test_other_sources_have_other_answers(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = CountingCase()
    counting.load()
    copy = tmp_path / "operation"
    copy.mkdir()
    for path in FOLDER.glob("*.py"):
        (copy / path.name).write_bytes(path.read_bytes())
    assert oracle.sources(copy) == oracle.sources(FOLDER)
    (copy / "__init__.py").write_text("# changed", encoding="utf-8")
    oracle.sources.cache_clear()
    monkeypatch.setattr(LAYER_NORM, "folder", copy)
    assert counting.load() == 2
    assert len(files(place)) == 2
    monkeypatch.setattr(LAYER_NORM, "shared_sources", ())
    assert counting.load() == 3
    assert len(files(place)) == 3


def test_a_key_depends_on_every_input() -> None:
    plain = case(ROW)
    changed = plain.x.copy()
    changed[3, 5] = np.nextafter(changed[3, 5], np.float32(9))
    tall = {name: rows.reshape(67, 4) for name, rows in plain.rows.items()}
    others = [
        plain.with_inputs(x=changed),
        plain.with_inputs(dy=-plain.dy),
        plain.with_inputs(gamma=None),
        plain.with_inputs(beta=None),
        plain.with_inputs(gamma=plain.gamma.astype(np.float64)),
        plain.with_inputs(x=plain.x.astype(np.float64)),
        plain.with_inputs(**tall),
        plain.part(slice(2)),
        replace(plain, repeats=2),
        replace(plain, eps=float(np.nextafter(plain.eps, 1))),
    ]
    assert len({AnswerKey.of(each).name for each in (plain, *others)}) == 1 + len(others)
    # Name, reason and layout are no part of it.
    same = replace(plain, name="another", why="", layout="strided")
    assert AnswerKey.of(same).name == AnswerKey.of(plain).name


class TestQuickLevel:
    """The answers in the package are those that its sources compute."""

    @pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
    def test_sources_are_current(self, operation: Operation) -> None:
        """If this fails: `python -m benchmarks.answers`."""
        assert operation.folder is not None
        sources_hash = (
            (operation.folder / oracle.QUICK_SOURCES).read_text(encoding="utf-8").strip()
        )
        assert sources_hash == oracle.sources_of(operation)

    @pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
    def test_nearly_all_are_there_and_small(self, operation: Operation) -> None:
        assert operation.folder is not None
        assert (operation.folder / oracle.QUICK_ARCHIVE).stat().st_size <= ROOM
        numbers = {AnswerKey.of(each).name: each.x.size for each in quick_cases(operation)}
        there = shipped(operation)
        assert set(there) <= set(numbers)
        assert sum(numbers[name] for name in there) > 0.95 * sum(numbers.values())

    def check(self, each: Case) -> None:
        key = AnswerKey.of(each)
        content = shipped(each.operation).get(key.name)
        if content is not None:  # it was chosen
            found = unpack(key, each.operation.predictors, content)
            assert found is not None, each
            assert fingerprint(found) == fingerprint(compute_exact(each)), each

    @pytest.mark.parametrize("step", [
        43,
        pytest.param(1,
            marks=pytest.mark.slow(reason="all answers of all cases are computed again")),
    ])  # fmt: skip
    @pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
    def test_they_are_recomputed(self, operation: Norm, step: int) -> None:
        for each in quick_cases(operation)[::step]:
            self.check(each)

    def test_stale_or_damaged_ones_are_not_used(self, tmp_path: Path) -> None:
        archive, sources_hash = tmp_path / oracle.QUICK_ARCHIVE, tmp_path / oracle.QUICK_SOURCES

        def found() -> dict[str, bytes]:
            return oracle._quick.__wrapped__(tmp_path, "of today")

        assert found() == {}
        sources_hash.write_text("of today\n", encoding="utf-8")
        archive.write_bytes(b"no archive")
        assert found() == {}
        with zipfile.ZipFile(archive, "w") as whole:
            whole.writestr("name", b"content")
        assert found() == {"name": b"content"}
        sources_hash.write_text("of yesterday\n", encoding="utf-8")
        assert found() == {}


@pytest.mark.parametrize(("output", "power", "roundings"), [
    ("y", 0, 8 + 67**0.5 / 4), ("y", 1, 8 + 67 / 2), ("dx", 2, 8 + 67 / 2),
    ("dgamma", 1, 8 + 67 / 2), ("dbeta", 1, 8 + 4),
])  # fmt: skip
def test_rows_of_hard_cases_may_be_summed_one_by_one(
    output: str, power: int, roundings: float
) -> None:
    """Each of D additions errs by at most u, and the root of the sum by half of that."""
    hard = expected(case("float32-sorted-4x67"))
    assert hard.factor(output, power) == pytest.approx(roundings)
    ordinary = expected(case("float32-normal-4x12"))
    assert ordinary.factor("y", 1) == 8 + 12**0.5 / 4
    narrow = expected(case("bfloat16-sorted-4x67"))
    assert narrow.factor("y", 1) == narrow.factor("y") < 3.1


def test_a_sum_in_sequence_has_no_error_as_large_as_the_result() -> None:
    """In float16, 4096 rows may have an error of 1/8 of the scale, not of 2."""
    assert expected(case("float16-many-rows-4096x8")).factor("dbeta", 1) == 2**11 / 8
