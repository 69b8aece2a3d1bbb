"""Campaigns: counts, findings, settings, and the same bytes with any executor."""

import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import truenorm.verify as tv
from full.verify.report.test_json import schema_errors
from shared.verify.planted.registry import PLANTED
from shared.verify.workers import kernels
from shared.verify.workers.executors import Backwards, processes, text_of
from truenorm.verify import campaigns
from truenorm.verify.campaigns import CampaignSettings, campaign_target, cases_of
from truenorm.verify.oracle import EXPECTED_BY_CASE
from truenorm.verify.report import terminal as page
from truenorm.verify.report.json_report import to_json
from truenorm.verify.suite import seeded_cases
from truenorm.verify.types import Array

SLOW = pytest.mark.slow(reason="a campaign takes half a minute")

FILE = Path(kernels.__file__)

campaign = partial(tv.campaign, strict=True)


@pytest.fixture
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw only small cases, five for each part."""

    def narrow(*arguments: Any) -> list[tv.Case]:
        return [each for each in cases_of(*arguments) if each.x.size < 500]

    monkeypatch.setattr(campaigns, "cases_of", narrow)
    monkeypatch.setattr(campaigns, "PART_CASES", 5)


def test_cases_of_seeds() -> None:
    """Seeds have distinct cases and the same number of them: a part needs no list of names."""
    operation, dtype = tv.RMS_NORM, "float32"
    known = {each.name for each in tv.cases(dtype, operation=operation)}
    result = [seeded_cases(operation, dtype, "quick", seed) for seed in (1, 2, 3)]
    names = [each.name for some in result for each in some]
    assert len({len(some) for some in result}) == 1
    assert len(set(names)) == len(names)
    assert not known & set(names)
    assert names[0] != f"{dtype}-normal-4x2-1"  # the order is drawn, too
    assert tv.case(names[-1], operation=operation).x.tobytes() == result[-1][-1].x.tobytes()


@pytest.mark.usefixtures("_narrow")
def test_counts() -> None:
    known = dict(EXPECTED_BY_CASE)
    result = campaign(kernels.right, 7, seed=5)
    assert known == EXPECTED_BY_CASE  # nothing is kept
    some = [
        each for each in seeded_cases(tv.LAYER_NORM, "float32", "quick", 5) if each.x.size < 500
    ]
    cases = [each for each in some if not each.needs][:7]
    assert (result.cases, result.asked, result.seed) == (7, 7, 5)
    assert result.elements == sum(each.x.size for each in cases)
    assert result.answers == sum(each.x.size // each.repeats for each in cases)
    (of_y,) = result.results
    assert (of_y.cases, of_y.elements, of_y.wrong) == (7, result.elements, 0)
    assert (result.passed, result.failed, result.findings) == (True, 0, ())


@pytest.mark.usefixtures("_narrow")
def test_any_executor_counts_the_same() -> None:
    plain = text_of(campaign(kernels.wrong, 12, seed=3))
    executor = Backwards()
    assert text_of(campaign(kernels.wrong, 12, seed=3, executor=executor)) == plain
    assert executor.done == 3
    assert text_of(campaign(kernels.wrong, 12, seed=4)) != plain


def test_processes() -> None:
    plain = text_of(campaign(kernels.wrong, 4, seed=3))
    with processes(2) as executor:
        assert text_of(campaign(kernels.wrong, 4, seed=3, executor=executor)) == plain


@SLOW
@pytest.mark.usefixtures("_narrow")
def test_kernel_that_only_random_cases_expose(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is wrong at widths that no fixed case has."""
    monkeypatch.setattr(campaigns, "KEPT_FAILURES", 1)  # others are counted, and not kept
    known = [each for each in tv.cases("float32") if each.shape[1] < 64]
    for case in known:
        tv.check(kernels.odd_width, case)
    result = campaign(kernels.odd_width, 140, seed=1)
    assert not result.passed
    assert 0 < result.wrong < result.elements
    first = result.findings[0]
    assert first.also_in == result.failed - 1 > 0
    assert int(first.case.split("x")[-1].split("-")[0]) in range(9, 64)
    with pytest.raises(AssertionError, match="exact"):
        exec(first.reproducer, {})


@SLOW
@pytest.mark.usefixtures("_narrow")
def test_wrong_elements_by_grade() -> None:
    counts = {
        require: campaign(kernels.wrong, 20, seed=3, require=require).wrong
        for require in ("conditional", "stable", "faithful", "correct")
    }
    assert sorted(counts.values()) == list(counts.values())
    assert len(set(counts.values())) == 4
    result = campaign(kernels.right, 10, seed=3, require="correct")
    assert result.passed == (result.wrong == 0)
    assert result.passed == (result.results[0].grade == "correct")


@pytest.mark.parametrize("claims", [(), ("idle-rows",)])
def test_idle_rows_count_if_claimed(
    monkeypatch: pytest.MonkeyPatch, claims: tuple[str, ...]
) -> None:
    """The batches, which every subject gets, show it here."""
    suite = [tv.case("float32-batch-300x67")]
    monkeypatch.setattr(campaigns, "cases_of", lambda *_: suite)
    cut = PLANTED["dgamma cut by the number of rows"].subject
    result = campaign(replace(cut, also=claims), 1)
    assert (result.passed, result.failed) == (not claims, len(claims))
    assert {(each.guard, each.output) for each in result.findings} == (
        {("idle", "dgamma")} if claims else set()
    )


CRASHING = CampaignSettings(30, 7, "quick", "stable")


@pytest.mark.usefixtures("_narrow")
@SLOW
def test_three_crashes() -> None:
    result = campaign_target(f"{FILE}:aborts", CRASHING)
    assert not result.passed
    assert result.not_run == 30 - result.cases - result.left_out > 0
    assert "crashed: SIGABRT" in result.findings[0].symptom
    assert "did not run" in page.campaign_conclusion(result)


def test_cases_outside_the_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "PART_CASES", 5)
    subject = tv.Subject(kernels.one_pass, domain=tv.Domain(largest=1e-300))
    result = campaign(subject, 4, seed=2)
    assert (result.left_out, result.cases, result.not_run) == (4, 0, 0)
    assert not result.passed
    assert "left out" in page.campaign_conclusion(result)


def test_equal_shares_of_types() -> None:
    parts = list(campaigns._parts({"float16": 8, "float32": 20}, 41, 7, 3))
    assert [each.stop - each.start for each in parts if each.dtype == "float32"] == [16, 4]
    assert [each.seed for each in parts if each.dtype == "float16"] == [7, 10, 13]
    assert sum(each.stop - each.start for each in parts) == 41


@pytest.mark.parametrize(("settings", "message"), [
    ({"cases": 0}, "cases must be 1 or above, got 0"),
    ({"cases": 1, "seed": 0}, "seed must be 1 or above, got 0"),
    ({"cases": 1, "require": "wrong"}, "require must be one of .*; got 'wrong'"),
    ({"cases": 1, "level": "slow"}, "level must be one of quick, full; got 'slow'"),
])  # fmt: skip
def test_invalid_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        campaign(kernels.right, **settings)


def test_width_of_the_trial_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """No judged case has it."""
    suite = [tv.case("float32-normal-4x5"), tv.case("float32-normal-4x64")]
    monkeypatch.setattr(campaigns, "cases_of", lambda *_: suite)

    def forward(x: Array, *parameters: Any) -> Array:
        if x.shape[-1] < 64:
            raise ValueError("too narrow")
        return kernels.two_pass(x, *parameters)

    (finding,) = campaign(tv.Subject(forward), 1).findings
    assert (finding.guard, finding.case) == ("raised", "float32-normal-4x5")


def test_recipes_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"claims the recipe 'late', .* 'truenorm verify'"):
        campaign(tv.Subject(kernels.two_pass, recipe="late"), 1)


@pytest.mark.usefixtures("_narrow")
def test_reports() -> None:
    for subject, outcome in ((kernels.right, "PASS"), (kernels.wrong, "FAIL")):
        result = campaign(subject, 8, seed=3)
        assert schema_errors("campaign-1", json.loads(to_json(result))) == []
        console = Console(width=80, record=True, file=io.StringIO())
        page.show_campaign(result, console)
        text = console.export_text()
        assert f"{result.elements:,} elements" in text
        assert outcome in text
        assert ("tv.case(" in text) == (outcome == "FAIL")
    report = json.loads(to_json(result))
    for name in report:
        if name != "schema":
            assert (
                schema_errors("campaign-1", {key: report[key] for key in report if key != name})
                != []
            )


@pytest.mark.usefixtures("_narrow")
def test_progress() -> None:
    steps: list[tuple[int, int, str]] = []
    campaign(kernels.right, 7, seed=5, progress=lambda *each: steps.append(each))
    assert [each[:2] for each in steps] == [(0, 7), (5, 7), (7, 7)]
    assert "elements, 0 wrong" in steps[-1][2]


def test_cases_beyond_what_models_feed_are_left_out() -> None:
    """Sums over rows may have log2(n) times the error, as in a report."""
    result = tv.campaign(kernels.right, 7, seed=5)
    assert result.left_out > 0
    assert result.cases + result.left_out == 7


@SLOW
@pytest.mark.usefixtures("_narrow")
def test_crashes_in_a_worker() -> None:
    plain = text_of(campaign_target(f"{FILE}:aborts", CRASHING))
    spread = campaign_target(f"{FILE}:aborts", CRASHING, executor=Backwards())
    assert text_of(spread) == plain
