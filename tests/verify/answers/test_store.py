"""Answers are kept for the next process: of these sources, whole, and written by nobody else."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truenorm.verify.answers import store
from truenorm.verify.answers.question import Numbers
from truenorm.verify.inputs import Case
from truenorm.verify.oracle import Expected, computed, question
from truenorm.verify.suite import case

POSIX = pytest.mark.skipif(store.WINDOWS, reason="there, owner and mode say nothing")
ROW = "float32-normal-4x67"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the user's, which is not there yet; the package has nothing."""
    chosen = tmp_path / "cache"
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(chosen))
    monkeypatch.setattr(store, "_package", dict)
    return chosen


class Asker:
    """Asks for the numbers of a case, and counts how often they are computed."""

    def __init__(self, asked: Case | None = None) -> None:
        self.question = question(asked or case(ROW))
        self.right = computed(self.question)
        self.times = 0

    def compute(self) -> Numbers:
        self.times += 1
        return self.right

    def ask(self) -> int:
        """Return how often it was computed; what comes back is right in any case."""
        found = store.answer(self.question, self.compute)
        assert found.keys() == self.right.keys()
        for name, array in self.right.items():
            assert found[name].tobytes() == array.tobytes(), name
        return self.times


def kept(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def test_it_is_computed_once(place: Path) -> None:
    asker = Asker()
    assert [asker.ask() for _ in range(3)] == [1, 1, 1]
    (file,) = kept(place)
    assert file.name == asker.question.name
    if not store.WINDOWS:
        modes = {path.stat().st_mode & 0o777 for path in (place, file.parent)}
        assert modes == {0o700}
        assert file.stat().st_mode & 0o777 == 0o600


def test_another_process_finds_it(place: Path) -> None:
    """Several at once, too; and none leaves anything half-written."""
    code = f"""
from truenorm.verify import oracle, suite
from truenorm.verify.answers import store
store._package = dict
computed = oracle.computed
times = []
oracle.computed = lambda asked: times.append(1) or computed(asked)
oracle.expected(suite.case("{ROW}"))
print(len(times))
"""
    command = [sys.executable, "-W", "error", "-c", code]
    at_once = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert {process.communicate()[0].strip() for process in at_once} <= {"0", "1"}
    after = subprocess.run(command, capture_output=True, text=True, check=True)
    assert after.stdout.strip() == "0"
    assert len(kept(place)) == 1


@pytest.mark.parametrize("how", ["half", "empty", "bit", "other"])
def test_a_damaged_file_is_noticed_and_mended(place: Path, how: str) -> None:
    asker = Asker()
    asker.ask()
    (file,) = kept(place)
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 4
    damaged = {"half": whole[: len(whole) // 2], "empty": b"", "bit": bytes(changed)}
    file.write_bytes(damaged.get(how, b"something else"))
    assert asker.ask() == 2
    assert file.read_bytes() == whole


@POSIX
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_nothing_is_read_that_others_can_write(place: Path, which: int, mode: int) -> None:
    asker = Asker()
    asker.ask()
    (file,) = kept(place)
    spot = (place, file.parent, file)[which]
    spot.chmod(spot.stat().st_mode | mode)
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert asker.ask() == 2
    if spot != file:
        assert (file.read_bytes(), file.stat().st_mtime_ns) == before, "and nothing written there"


def of_another(look: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
    def looked(*spot: Any, **options: Any) -> os.stat_result:
        mode, inode, device, links, _, *others = look(*spot, **options)[:10]
        return os.stat_result((mode, inode, device, links, os.geteuid() + 1, *others))

    return looked


@POSIX
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("owned", ["stat", "lstat", "fstat"])
def test_nothing_is_read_that_is_not_ours(monkeypatch: pytest.MonkeyPatch, owned: str) -> None:
    """Neither a folder nor a link to it, nor a file."""
    asker = Asker()
    asker.ask()
    whose = os if owned == "fstat" else Path
    monkeypatch.setattr(whose, owned, of_another(getattr(whose, owned)))
    assert asker.ask() == 2


@POSIX
def test_no_folder_is_made_in_that_of_another(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root could, and the owner could not use it."""
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", of_another(Path.stat))
        Asker().ask()
    assert not place.exists()


@pytest.mark.parametrize("unusable", ["file", "link", "variable"])
def test_without_a_place_it_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unusable: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "nothing")
    monkeypatch.setattr(store, "_package", dict)
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / unusable))
    if unusable == "variable":
        for name in ("TRUENORM_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)

        def none() -> Path:
            raise RuntimeError("there is no home")

        monkeypatch.setattr(Path, "home", none)
    asker = Asker()
    assert [asker.ask(), asker.ask()] == [1, 2]


def test_without_the_variable_it_is_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_package", dict)
    monkeypatch.delenv("TRUENORM_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Asker().ask()
    assert len(kept(tmp_path / "truenorm")) == 1


def test_other_sources_have_other_answers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker()
    asker.ask()
    monkeypatch.setattr(store, "SOURCES", "another")
    assert asker.ask() == 2
    assert len(kept(place)) == 2
    monkeypatch.setattr(store, "SOURCES", "")  # as in an archive, where there are none to look at
    assert asker.ask() == 3
    assert len(kept(place)) == 2


def test_little_is_kept_of_what_is_quickly_computed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = Asker(case("float32-normal-4x12"))
    assert [asker.ask(), asker.ask()] == [1, 2]
    assert not kept(place)
    monkeypatch.setattr(store, "MOST_FILES", 1)
    for name in (ROW, "float32-normal-4x96"):
        Asker(case(name)).ask()
    assert len(kept(place)) == 1


def test_every_part_of_a_question_counts() -> None:
    plain = case(ROW)
    changed = plain.x.copy()
    changed[3, 5] = np.nextafter(changed[3, 5], np.float32(9))
    others = [
        replace(plain, x=changed),
        replace(plain, dy=-plain.dy),
        replace(plain, eps=float(np.nextafter(plain.eps, 1))),
        replace(plain, gamma=None),
        replace(plain, beta=None),
        replace(plain, gamma=np.asarray(plain.gamma, np.float64)),
        replace(plain, x=plain.x.astype(np.float64)),
        replace(plain, x=plain.x[:2], dy=plain.dy[:2]),
        replace(plain, repeats=2),
        replace(plain, x=plain.x.reshape(67, 4), dy=plain.dy.reshape(67, 4)),
    ]
    names = {question(each).name for each in (plain, *others)}
    assert len(names) == 1 + len(others)
    # And nothing else does.
    assert question(replace(plain, name="another", why="", repeats=1)).name == question(plain).name


def test_an_expected_result_does_not_depend_on_where_it_comes_from(place: Path) -> None:
    first, second = Expected(case(ROW)), Expected(case(ROW))
    assert kept(place)
    for output, kind in first.types.items():
        assert second.types[output] == kind
        assert (second.rests[output] == first.rests[output]).all()
        assert (second.allowed(output, 2) == first.allowed(output, 2)).all()


def test_numbers_are_of_the_question(place: Path) -> None:
    """A file under the wrong name, say copied there, is not believed."""
    first, second = Asker(), Asker(case("float32-offset-1-4x67"))
    first.ask()
    (file,) = kept(place)
    file.rename(file.with_name(second.question.name))
    assert second.ask() == 1
