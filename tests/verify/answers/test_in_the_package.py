"""The answers that come with the package are those that its sources compute."""

import zipfile

import pytest

from benchmarks.answers import quick_cases
from truenorm.verify.answers import store
from truenorm.verify.answers.packing import unpack
from truenorm.verify.answers.question import fingerprint
from truenorm.verify.inputs import Case
from truenorm.verify.oracle import computed, question

ROOM = 2_000_000
CASES = quick_cases()
SAMPLE = CASES[::37]


def test_they_belong_to_these_sources() -> None:
    """If this fails: `python -m benchmarks.answers`."""
    assert store.OF_THESE_SOURCES.read_text(encoding="utf-8").strip() == store.SOURCES
    assert store._package()


def test_they_are_few_bytes_and_nearly_all() -> None:
    assert store.IN_THE_PACKAGE.stat().st_size <= ROOM
    names = {question(case).name for case in CASES}
    assert set(store._package()) <= names
    assert len(store._package()) > 0.95 * len(names)


def check(case: Case) -> None:
    asked = question(case)
    kept = store._package().get(asked.name)
    if kept is not None:  # it was chosen
        found = unpack(asked, kept)
        assert found is not None
        assert fingerprint(found) == fingerprint(computed(asked))


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_a_sample_computed_anew(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_computed_anew(case: Case) -> None:
    check(case)


def test_stale_ones_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SOURCES", "another")
    assert store._package.__wrapped__() == {}


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_without_them_there_are_none(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("package")
    archive = folder / "quick.zip"
    monkeypatch.setattr(store, "IN_THE_PACKAGE", archive)
    assert store._package.__wrapped__() == {}
    archive.write_bytes(content)
    assert store._package.__wrapped__() == {}
    with zipfile.ZipFile(archive, "w") as whole:
        whole.writestr("name", b"content")
    assert store._package.__wrapped__() == {"name": b"content"}
