"""Many cases: what is counted, what is found, and that it does not matter who counts."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import truenorm.verify as tv
from truenorm.verify import campaigns
from truenorm.verify.campaigns import CampaignSettings, campaign_target, cases_of
from truenorm.verify.oracle import EXPECTED_BY_CASE
from truenorm.verify.report import terminal as page
from truenorm.verify.report.json_report import to_json
from truenorm.verify.suite import seeded_cases
from truenorm.verify.types import FORMATS, Array
from verify.collecting import kernels
from verify.collecting.executors import Backwards, processes, text_of
from verify.planted.registry import PLANTED
from verify.report.test_json import refusals

FILE = Path(kernels.__file__)


@pytest.fixture
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw cases with quick answers alone, five at a time."""

    def narrow(*given: Any) -> list[tv.Case]:
        return [each for each in cases_of(*given) if each.x.size < 500]

    monkeypatch.setattr("truenorm.verify.campaigns.cases_of", narrow)
    monkeypatch.setattr(campaigns, "cases_of", narrow)
    monkeypatch.setattr(campaigns, "PART_CASES", 5)


OPERATIONS = [tv.LAYER_NORM, tv.RMS_NORM, tv.norm("add_rms_norm")]
EACH = [(operation, dtype) for operation in OPERATIONS for dtype in FORMATS]
QUICK = (tv.RMS_NORM, "float32")


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in EACH if each != QUICK)],
)
def test_what_is_drawn(operation: tv.Norm, dtype: str) -> None:
    """Seeds have no case in common, and as many each: so a part needs no list of names."""
    known = {each.name for each in tv.cases(dtype, operation=operation)}
    found = [seeded_cases(operation, dtype, "quick", seed) for seed in (1, 2, 3)]
    names = [each.name for some in found for each in some]
    assert len({len(some) for some in found}) == 1
    assert len(set(names)) == len(names)
    assert not known & set(names)
    assert names[0] != f"{dtype}-normal-4x2-1"  # the order is drawn, too
    assert tv.case(names[-1], operation=operation).x.tobytes() == found[-1][-1].x.tobytes()


@pytest.mark.usefixtures("_narrow")
def test_what_is_counted() -> None:
    known = dict(EXPECTED_BY_CASE)
    found = tv.campaign(kernels.right, 7, seed=5)
    assert known == EXPECTED_BY_CASE  # nothing is kept
    some = [
        each for each in seeded_cases(tv.LAYER_NORM, "float32", "quick", 5) if each.x.size < 500
    ]
    cases = [each for each in some if not each.needs][:7]
    assert (found.cases, found.asked, found.seed) == (7, 7, 5)
    assert found.elements == sum(each.x.size for each in cases)
    assert found.answers == sum(each.x.size // each.repeats for each in cases)
    (of_y,) = found.results
    assert (of_y.cases, of_y.elements, of_y.wrong) == (7, found.elements, 0)
    assert (found.passed, found.failed, found.findings) == (True, 0, ())


@pytest.mark.usefixtures("_narrow")
def test_it_does_not_matter_who_counts() -> None:
    plain = text_of(tv.campaign(kernels.wrong, 12, seed=3))
    executor = Backwards()
    assert text_of(tv.campaign(kernels.wrong, 12, seed=3, executor=executor)) == plain
    assert executor.done == 3
    assert text_of(tv.campaign(kernels.wrong, 12, seed=4)) != plain


def test_processes() -> None:
    plain = text_of(tv.campaign(kernels.wrong, 4, seed=3))
    with processes(2) as executor:
        assert text_of(tv.campaign(kernels.wrong, 4, seed=3, executor=executor)) == plain


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_a_whole_seed(count: int) -> None:
    target = f"{FILE}:wrong"
    settings = CampaignSettings(150, 11, "quick", "stable")
    plain = text_of(campaign_target(target, settings))
    with processes(count) as executor:
        assert text_of(campaign_target(target, settings, executor=executor)) == plain


@pytest.mark.usefixtures("_narrow")
def test_a_kernel_that_passes_and_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """At widths that are drawn: of the cases that everybody knows, none shows it."""
    monkeypatch.setattr(campaigns, "KEPT_FAILURES", 1)  # others are counted, and not kept
    known = [each for each in tv.cases("float32") if each.shape[1] < 64]
    for case in known:
        tv.check(kernels.odd_width, case)
    found = tv.campaign(kernels.odd_width, 140, seed=1)
    assert not found.passed
    assert 0 < found.wrong < found.elements
    first = found.findings[0]
    assert first.also_in == found.failed - 1 > 0
    assert int(first.case.split("x")[-1].split("-")[0]) in range(9, 64)
    with pytest.raises(AssertionError, match="exact"):
        exec(first.reproducer, {})


@pytest.mark.usefixtures("_narrow")
def test_wrong_is_what_is_below_the_grade() -> None:
    counts = {
        require: tv.campaign(kernels.wrong, 20, seed=3, require=require).wrong
        for require in ("conditional", "stable", "faithful", "correct")
    }
    assert sorted(counts.values()) == list(counts.values())
    assert len(set(counts.values())) == 4
    found = tv.campaign(kernels.right, 10, seed=3, require="correct")
    assert found.passed == (found.wrong == 0)
    assert found.passed == (found.results[0].grade == "correct")


@pytest.mark.parametrize("claims", [(), ("idle-rows",)])
def test_idle_rows_are_held_against_who_claims(
    monkeypatch: pytest.MonkeyPatch, claims: tuple[str, ...]
) -> None:
    """Whichever case shows it: here the batches, which everybody is given."""
    suite = [tv.case("float32-batch-300x67")]
    monkeypatch.setattr("truenorm.verify.campaigns.cases_of", lambda *_: suite)
    monkeypatch.setattr(campaigns, "cases_of", lambda *_: suite)
    cut = PLANTED["dgamma cut by the number of rows"].subject
    found = tv.campaign(replace(cut, also=claims), 1)
    assert (found.passed, found.failed) == (not claims, len(claims))
    assert {(each.guard, each.output) for each in found.findings} == (
        {("idle", "dgamma")} if claims else set()
    )


CRASHING = CampaignSettings(30, 2, "quick", "stable")


@pytest.mark.usefixtures("_narrow")
@pytest.mark.slow
def test_a_crash_stops_it_after_the_third() -> None:
    found = campaign_target(f"{FILE}:aborts", CRASHING)
    assert not found.passed
    assert found.not_run == 30 - found.cases > 0
    assert "crashed: SIGABRT" in found.findings[0].symptom
    assert "did not run" in page.campaign_conclusion(found)


@pytest.mark.slow
@pytest.mark.usefixtures("_narrow")
def test_a_crash_in_a_worker() -> None:
    plain = text_of(campaign_target(f"{FILE}:aborts", CRASHING))
    spread = campaign_target(f"{FILE}:aborts", CRASHING, executor=Backwards())
    assert text_of(spread) == plain


def test_beyond_the_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "PART_CASES", 5)
    subject = tv.Subject(kernels.one_pass, domain=tv.Domain(kappa=1.0))
    found = tv.campaign(subject, 4, seed=2)
    assert (found.left_out, found.cases, found.not_run) == (4, 0, 0)
    assert not found.passed
    assert "left out" in page.campaign_conclusion(found)


def test_several_types_have_equal_shares() -> None:
    parts = list(campaigns._parts({"float16": 8, "float32": 20}, 41, 7, 3))
    assert [each.stop - each.start for each in parts if each.dtype == "float32"] == [16, 4]
    assert [each.seed for each in parts if each.dtype == "float16"] == [7, 10, 13]
    assert sum(each.stop - each.start for each in parts) == 41


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cases": 0}, "cases is 0"),
        ({"cases": 1, "seed": 0}, "seed is 0"),
        ({"cases": 1, "require": "wrong"}, "require is 'wrong'"),
        ({"cases": 1, "level": "slow"}, "level is 'slow'"),
    ],
)
def test_refusals(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tv.campaign(kernels.right, **asked)


def test_the_trial_call_has_a_usual_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though none of the cases that are judged has it."""
    suite = [tv.case("float32-normal-4x5"), tv.case("float32-normal-4x64")]
    monkeypatch.setattr("truenorm.verify.campaigns.cases_of", lambda *_: suite)
    monkeypatch.setattr(campaigns, "cases_of", lambda *_: suite)

    def forward(x: Array, *given: Any) -> Array:
        if x.shape[-1] < 64:
            raise ValueError("too narrow")
        return kernels.two_pass(x, *given)

    (finding,) = tv.campaign(tv.Subject(forward), 1).findings
    assert (finding.guard, finding.case) == ("raised", "float32-normal-4x5")


def test_a_recipe_is_not_dropped() -> None:
    with pytest.raises(ValueError, match=r"claims the recipe 'late', .* without --cases"):
        tv.campaign(tv.Subject(kernels.two_pass, recipe="late"), 1)


@pytest.mark.usefixtures("_narrow")
def test_pages() -> None:
    for subject, outcome in ((kernels.right, "PASS"), (kernels.wrong, "FAIL")):
        found = tv.campaign(subject, 8, seed=3)
        assert refusals("campaign-1", json.loads(to_json(found))) == []
        console = Console(width=80, record=True, file=io.StringIO())
        page.show_campaign(found, console)
        text = console.export_text()
        assert f"{found.elements:,} elements" in text
        assert outcome in text
        assert ("tv.case(" in text) == (outcome == "FAIL")
    told = json.loads(to_json(found))
    for name in told:
        if name != "schema":
            assert refusals("campaign-1", {key: told[key] for key in told if key != name}) != []


@pytest.mark.usefixtures("_narrow")
def test_progress() -> None:
    told: list[tuple[int, int, str]] = []
    tv.campaign(kernels.right, 7, seed=5, progress=lambda *each: told.append(each))
    assert [each[:2] for each in told] == [(0, 7), (5, 7), (7, 7)]
    assert "elements, 0 wrong" in told[-1][2]
