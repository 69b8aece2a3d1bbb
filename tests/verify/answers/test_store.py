"""Answers are kept for the next process, and belong to a question and to sources."""

import subprocess
import sys
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.answers import quick_cases
from truenorm import user_cache
from truenorm.verify import oracle
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import LAYER_NORM, OPERATIONS
from truenorm.verify.oracle import AnswerKey, Arrays, compute_exact, fingerprint, unpack
from truenorm.verify.suite import case

ROOM = 2_200_000
ROW = "float32-normal-4x67"
assert LAYER_NORM.folder is not None
FOLDER = LAYER_NORM.folder
CASES = [each for operation in OPERATIONS.values() for each in quick_cases(operation)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the user's, which is not there yet; the package has nothing."""
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / "place"))
    monkeypatch.setattr(oracle, "_quick", lambda *_: {})
    return tmp_path / "place"


class Asker:
    """Asks for the numbers of a case, and counts how often they are computed."""

    def __init__(self, asked: Case | None = None) -> None:
        self.case = asked or case(ROW)
        self.right = fingerprint(compute_exact(self.case))
        self.times = 0

    def compute(self, asked: Case) -> Arrays:
        self.times += 1
        return compute_exact(asked)

    def ask(self) -> int:
        """Return how often it was computed; what comes back is right in any case."""
        assert fingerprint(oracle.load_or_compute(self.case, self.compute)) == self.right
        return self.times


def there(operation: Operation) -> dict[str, bytes]:
    assert operation.folder is not None
    return oracle._quick(operation.folder, oracle.sources_of(operation))


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def test_it_is_computed_once(place: Path) -> None:
    asker = Asker()
    assert [asker.ask() for _ in range(3)] == [1, 1, 1]
    assert [file.name for file in files(place)] == [AnswerKey.of(asker.case).name]


def test_what_is_drawn_for_one_run_is_not_kept(place: Path) -> None:
    asker = Asker(case(f"{ROW}-12345"))
    assert [asker.ask() for _ in range(2)] == [1, 2]
    assert files(place) == []


def test_another_process_finds_it(place: Path) -> None:
    """Several at once, too; and none leaves anything half-written."""
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


def test_a_damaged_file_is_mended(place: Path) -> None:
    asker = Asker()
    asker.ask()
    (file,) = files(place)
    whole = file.read_bytes()
    # The second is whole, and not an answer: the cache believes it, and we do not.
    for damaged in (whole[:-9], sha256(b"something").digest() + b"something", b""):
        file.write_bytes(damaged)
        before = asker.times
        assert asker.ask() == before + 1
        assert file.read_bytes() == whole


def test_without_a_place_it_is_computed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.touch()
    asker = Asker()
    assert [asker.ask(), asker.ask()] == [1, 2]
    monkeypatch.setattr(user_cache, "_root", Mock(side_effect=RuntimeError("no home")))
    assert asker.ask() == 3


def test_what_is_quickly_computed_is_not_kept(place: Path) -> None:
    asker = Asker(case("float32-normal-4x12"))
    assert [asker.ask(), asker.ask()] == [1, 2]
    assert not place.exists()


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [(LAYER_NORM, "folder", None), (oracle, "sources", lambda *_: "")],
    ids=["of an operation that does not tell them", "in an archive"],
)
def test_without_sources_nothing_is_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, value: object
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", Mock(side_effect=NotADirectoryError))
        assert oracle.sources.__wrapped__(FOLDER) == ""
    monkeypatch.setattr(owner, name, value)
    asker = Asker()
    assert [asker.ask(), asker.ask()] == [1, 2]
    assert not place.exists()


def test_other_sources_have_other_answers(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = Asker()
    asker.ask()
    copy = tmp_path / "operation"
    copy.mkdir()
    for path in FOLDER.glob("*.py"):
        (copy / path.name).write_bytes(path.read_bytes())
    assert oracle.sources(copy) == oracle.sources(FOLDER)
    (copy / "__init__.py").write_text("# changed", encoding="utf-8")
    oracle.sources.cache_clear()
    monkeypatch.setattr(LAYER_NORM, "folder", copy)
    assert asker.ask() == 2
    assert len(files(place)) == 2
    monkeypatch.setattr(type(LAYER_NORM), "shared_sources", ())
    assert asker.ask() == 3
    assert len(files(place)) == 3


def test_every_part_of_a_question_counts() -> None:
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
    # And nothing else does: rows that are repeated have the answers of one.
    same = replace(plain, name="another", why="", layout="strided")
    assert AnswerKey.of(same).name == AnswerKey.of(plain).name


class TestQuickLevel:
    """The answers that come with the package are those that its sources compute."""

    @pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
    def test_they_belong_to_these_sources(self, operation: Operation) -> None:
        """If this fails: `python -m benchmarks.answers`."""
        assert operation.folder is not None
        made_with = (operation.folder / oracle.QUICK_SOURCES).read_text(encoding="utf-8").strip()
        assert made_with == oracle.sources_of(operation)

    @pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
    def test_nearly_all_are_there_in_little_room(self, operation: Operation) -> None:
        assert operation.folder is not None
        assert (operation.folder / oracle.QUICK_ARCHIVE).stat().st_size <= ROOM
        names = {AnswerKey.of(each).name for each in quick_cases(operation)}
        assert set(there(operation)) <= names
        assert len(there(operation)) > 0.95 * len(names)

    def check(self, each: Case) -> None:
        question = AnswerKey.of(each)
        content = there(each.operation).get(question.name)
        if content is not None:  # it was chosen
            found = unpack(question, each.operation.predictors, content)
            assert found is not None
            assert fingerprint(found) == fingerprint(compute_exact(each))

    @pytest.mark.parametrize("each", CASES[::43], ids=str)
    def test_a_sample_computed_anew(self, each: Case) -> None:
        self.check(each)

    @pytest.mark.slow
    @pytest.mark.parametrize("each", CASES, ids=str)
    def test_all_computed_anew(self, each: Case) -> None:
        self.check(each)

    def test_stale_or_damaged_ones_are_not_used(self, tmp_path: Path) -> None:
        archive, made_with = tmp_path / oracle.QUICK_ARCHIVE, tmp_path / oracle.QUICK_SOURCES

        def found() -> dict[str, bytes]:
            return oracle._quick.__wrapped__(tmp_path, "of today")

        assert found() == {}
        made_with.write_text("of today\n", encoding="utf-8")
        archive.write_bytes(b"no archive")
        assert found() == {}
        with zipfile.ZipFile(archive, "w") as whole:
            whole.writestr("name", b"content")
        assert found() == {"name": b"content"}
        made_with.write_text("of yesterday\n", encoding="utf-8")
        assert found() == {}
