"""The score without PyTorch: its value, the cases that are drawn, and the signs of cheating."""

import json
import os
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.enclosures import answers_by_enclosure
from truenorm.verify.grading.checks import planned_calls
from truenorm.verify.grading.report import CaseResult, Finding, Grade, Report
from truenorm.verify.operation import Case
from truenorm.verify.operations import as_operation
from truenorm.verify.oracle import expected, forget
from truenorm.verify.report.json_report import to_json
from truenorm.verify.running.guarded import SYMBOLS
from truenorm.verify.running.recording import make_recording
from truenorm.verify.running.records import Call, CannotRunError, Record
from truenorm.verify.scores import (
    HACKS,
    Evidence,
    Score,
    Server,
    ordinary_share,
    points,
    refused_layouts,
)
from truenorm.verify.submission import (
    MODEL_WIDTHS,
    NON_FINITE,
    Submission,
    draw_modes,
    draw_suite,
    generator,
    hidden,
    is_scored,
)
from verify.report.test_json import schema_errors

OUTPUTS = ("y", "dx", "dgamma", "dbeta")


def report(*grades: str, failing: int = 0, guard: str = "") -> Report:
    """Return a report with these grades, with ten checks of which some fail."""
    verdicts = {f"check {k}": "fail" if k < failing else "pass" for k in range(10)}
    finding = Finding(guard, "runs", "float32", "y", "a case", "why", "a symptom")
    return Report(
        "a kernel",
        "quick",
        "stable",
        tuple(
            Grade("float32", output, grade, 0.0, 0.0, "", None)
            for output, grade in zip(OUTPUTS, grades, strict=False)
        ),
        {**verdicts, "another": "not judged"},
        (finding,) if guard else (),
        (),
        operation=tv.LAYER_NORM,
    )


class TestValue:
    @pytest.mark.parametrize(
        ("of_report", "ordinary", "value"),
        [
            (report("correct", "correct"), 1.0, 1.0),
            (report("faithful"), 1.0, 0.97),
            (report("stable", "stable", "stable", "stable"), 1.0, 0.94),
            (report("conditional"), 1.0, 0.82),
            (report("unstable"), 1.0, 0.58),
            (report("conditional", "conditional", "conditional", "stable"), 1.0, 0.85),
            (report("correct", failing=3), 1.0, 0.97),
            (report("stable", guard="growth"), 1.0, 0.94),
            (report("wrong"), 0.5, 0.025),
            (report("correct"), 0.9, 0.081),
            (report("wrong"), 0.0, 0.0),
            (report("correct", guard="inputs"), 1.0, 0.1),
            (report("correct", guard="overwritten"), 1.0, 0.1),
            (report("correct", guard="type"), 0.8, 0.064),
        ],
    )
    def test_of_a_report(self, of_report: Report, ordinary: float, value: float) -> None:
        assert points(of_report, ordinary) == pytest.approx(value, abs=1e-9)

    def test_of_a_kernel_that_removes_nan(self) -> None:
        of_report = report("correct")
        verdicts = {**of_report.verdicts, "special values": "fail"}
        assert points(replace(of_report, verdicts=verdicts), 1.0) == 0.5

    def test_results_that_are_missing_are_not_right(self) -> None:
        suite = [tv.case(name) for name in ("float32-normal-4x3", "float32-normal-4x5")]
        hard = tv.case("float32-zeros")
        right = CaseResult("a", "float32", "normal", "ordinary", "y", 0, 0, 1, 2, False, 1.0)
        of_report = replace(report("wrong", "wrong"), results=(right, replace(right, needs=3)))
        assert ordinary_share([*suite, hard], of_report) == 1 / 4


@pytest.fixture(scope="module")
def suite() -> list[Case]:
    return draw_suite(submission(seed=1))


def submission(operation: str = "layer_norm", **options: Any) -> Submission:
    return Submission("file.py:name", as_operation(operation), **options)


def rows_of(suite: list[Case]) -> set[bytes]:
    """Return the rows that are not constant, which no permutation changes."""
    rows = [row for case in suite for row in case.x if case.shape[1] > 4]
    return {row.tobytes() for row in rows if (row != row[0]).any()}


class TestCases:
    def test_are_drawn_by_the_seed(self, suite: list[Case]) -> None:
        again, other = draw_suite(submission(seed=1)), draw_suite(submission(seed=2))
        assert len(suite) == 66
        assert [each.name for each in suite] == [f"float32-{k}" for k in range(66)]
        for one, same in zip(suite, again, strict=True):
            for name in ("x", "gamma", "beta", "dy"):
                assert getattr(one, name).tobytes() == getattr(same, name).tobytes()
        assert rows_of(suite).isdisjoint(rows_of(other))
        widths, others = ({case.shape[1] for case in some} for some in (suite, other))
        assert len(widths - others) >= 4

    def test_some_have_a_twin(self, suite: list[Case]) -> None:
        """A cache by shape gives a wrong result for one of them."""
        shapes = [case.shape for case in suite if case.kind == "ordinary"]
        assert sum(shapes.count(shape) > 1 for shape in shapes if shape != (4, 67)) >= 4

    def test_have_all_layouts(self, suite: list[Case]) -> None:
        layouts = [case.layout for case in suite if case.family == "layouts"]
        axes = {"one-axis", "three-axes", "one-token", "four-axes", "five-axes", "swapped-axes"}
        assert {*layouts} == axes | {"padded", "strided", "transposed", "unaligned"}
        plain = draw_suite(submission(seed=1, layouts=False))
        assert "layouts" not in {case.family for case in plain}

    def test_are_wide_and_large(self, suite: list[Case]) -> None:
        suites = [suite, *(draw_suite(submission(seed=seed)) for seed in (2, 3, 4, 5))]
        drawn = [
            sorted(case.shape[1] for case in each if case.x.size < 2**21 and case.shape[1] >= 2048)
            for each in suites
        ]
        for some in drawn:
            assert {4096, 8192} <= {*some}
            others = {*some} - {4096, 8192, *MODEL_WIDTHS}
            between, usual, middle, beyond = sorted(others)
            assert 2048 <= between < 4096 < usual < 8192 < middle < 20480 <= beyond <= 65536
        assert len({some[-1] for some in drawn}) == 5
        (large,) = [case for case in suite if case.x.size > 2**21]
        assert large.shape[0] > 1000
        (sparse,) = [case for case in suite if case.why.endswith(", dy of one column")]
        assert sparse.shape[1] >= 16
        assert (sparse.dy != 0).any(axis=0).sum() == 1

    def test_are_like_calls_in_a_model(self, suite: list[Case]) -> None:
        calls = [case for case in suite if case.family == "model"]
        assert {case.shape[1] for case in calls} <= {*MODEL_WIDTHS}
        *small, large = sorted(calls, key=lambda case: case.x.size)
        assert len(small) == 3
        assert all(32 <= case.shape[0] < 42 for case in small)
        assert 2**17 < large.x.size < 150_000
        assert sorted(case.layout for case in calls) == ["rows", *["three-axes"] * 3]
        assert sorted((bool(case.gamma.std()), bool(case.beta.any())) for case in calls) == [
            (False, False),
            (True, False),
            *[(True, True)] * 2,
        ]
        for case in calls:
            assert len({row.tobytes() for row in case.x}) == case.shape[0]
            assert (case.x[0] != case.x[-1]).sum() == 1
        of_numbers = {case.why.rpartition(", ")[2] for case in calls}
        assert of_numbers == {"a small dy", "some gamma are 0", "a row of zeros", "outliers"}
        modes = draw_modes(suite, generator(1, "modes"))
        of_calls = [mode for case, mode in zip(suite, modes, strict=True) if case in calls]
        assert {mode["inputs"] for mode in of_calls} == {"in a model"}
        assert ["x"] in [mode["gradients"] for mode in of_calls]
        kinds = {str(mode["gradients"]) for mode in of_calls}
        assert len(kinds) == 4
        wide = {case.shape[1] for case in suite if case.family == "wide"}
        assert len(wide & {*MODEL_WIDTHS}) >= 2

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
    def test_answers_of_large_calls_are_enclosed(self, dtype: str) -> None:
        """Integers would take minutes."""
        suite = draw_suite(submission(seed=2, dtypes=(dtype,)))
        (large,) = [case for case in suite if case.family == "model" and case.x.size > 2**17]
        assert answers_by_enclosure(large) is not None

    def test_first_columns_are_like_no_others(self, suite: list[Case]) -> None:
        """The statistics of wide rows are not those of their first columns."""
        for case in (each for each in suite if each.family == "wide"):
            x = case.x[0].astype(np.float64)
            half = x[: len(x) // 2]
            assert abs(half.mean() - x.mean()) > 1e-4 * x.std()

    def test_have_batches_of_several_sizes(self, suite: list[Case]) -> None:
        counts = [
            case.shape[0] for case in suite if re.fullmatch(r"ordinary input, \d+ rows", case.why)
        ]
        few, thousands = sorted(counts)
        assert 10 <= few < 300 < thousands < 4000

    def test_a_layout_may_be_refused(self, suite: list[Case]) -> None:
        names = {case.layout: case.name for case in suite if case.family in ("layouts", "wide")}
        failures = {
            names["padded"]: "raised ValueError: x must be contiguous",
            names["three-axes"]: "the process died",
            names["rows"]: "raised ValueError: too wide",
        }
        records = [Record(name, Call(), failure=text) for name, text in failures.items()]
        refused = refused_layouts(suite, records)
        assert refused == {
            names["padded"]: "It refuses x in the layout padded, which does not count."
        }

    def test_are_not_those_of_the_judge(self, suite: list[Case]) -> None:
        public = [case for case in tv.cases("float32") if case.x.size < 3000]
        assert rows_of(suite).isdisjoint(rows_of(public))

    def test_have_every_kind(self, suite: list[Case]) -> None:
        kinds = [case.kind for case in suite]
        assert {*kinds} == {"ordinary", "sweep", "hard", "special", "subnormal"}
        assert [case.family for case in suite if case.repeats == 10] == ["batch"]
        assert kinds.count("sweep") == 8

    def test_each_input_has_nan(self, suite: list[Case]) -> None:
        special = [case for case in suite if case.family == NON_FINITE]
        for name in ("x", "dy", "gamma", "beta"):
            assert any(np.isnan(getattr(case, name)).any() for case in special)

    def test_are_within_the_limit(self, suite: list[Case]) -> None:
        for case in suite:
            assert np.abs(case.x[np.isfinite(case.x)]).max(initial=0) <= 1e4
        larger = tv.case("float32-offset-1e6-4x67")
        assert is_scored(larger, 1e7)
        assert not is_scored(larger, 1e4)

    def test_need_the_parameters(self, suite: list[Case]) -> None:
        (new,) = [case for case in suite if case.why.endswith(", gamma = 1 and beta = 0")]
        assert (new.gamma == 1).all()
        assert (new.beta == 0).all()
        for case in (each for each in suite if each is not new and each.family != "model"):
            assert not ((case.gamma == 1).all() and (case.beta == 0).all())
            if case.kind == "ordinary" and case.family != "starts-plain":
                assert (case.gamma != 1).all()
                assert (case.beta != 0).all()

    @pytest.mark.parametrize("shapes", [(), ((1, 64),), ((16, 1024),)])
    @pytest.mark.parametrize("operation", ["layer_norm", "add_rms_norm", "group_norm,groups=4"])
    def test_have_nan_and_infinity(self, operation: str, shapes: Any) -> None:
        if shapes and operation.startswith("group"):
            shapes = ((2, 8, 5),)
        suite = draw_suite(submission(operation, seed=1, shapes=shapes))
        special = [case.x for case in suite if case.kind == "special"]
        assert any(np.isnan(x).any() for x in special)
        assert any(np.isinf(x).any() for x in special)

    def test_have_gradients_that_lie_otherwise(self, suite: list[Case]) -> None:
        (expanded,) = [case for case in suite if case.family == "an expanded dy"]
        (transposed,) = [case for case in suite if case.gradient_layout == "transposed"]
        assert (expanded.dy == expanded.dy[0, 0]).all()
        assert transposed.family == "a transposed dy"
        assert min(expanded.shape[0], transposed.shape[0]) > 1
        others = draw_suite(submission(seed=1, backward="gradients"))
        assert not [case for case in others if case.family.endswith((" dy", "backward pass"))]

    def test_have_similar_rows(self, suite: list[Case]) -> None:
        """A kernel that recognizes a row by some of its elements is wrong."""
        (case,) = [case for case in suite if case.why.endswith(", two similar rows")]
        one, other = case.x
        assert (one != other).sum() == 1
        others = [case for case in suite if ", another element of " in case.why]
        assert [case.why[-1] for case in others].count("x") == 3
        (gamma,) = [case.gamma for case in others if case.why.endswith("gamma")]
        assert (
            min(
                (gamma != case.gamma).sum()
                for case in suite
                if case.gamma.shape == gamma.shape and case.gamma is not gamma
            )
            == 1
        )

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_have_an_eps_that_matters(self, dtype: str) -> None:
        found = set()
        for seed in range(1, 6):
            suite = draw_suite(submission(seed=seed, dtypes=(dtype,)))
            (case,) = [each for each in suite if re.search(r", eps = [\d.e-]+$", each.why)]
            variance = case.x.astype(np.float64).var(axis=1)
            assert (variance / case.eps < 100).all()
            assert (variance / case.eps > 0.001).all()
            found.add(case.eps)
        assert len(found) == 5

    def test_have_every_mode(self, suite: list[Case]) -> None:
        modes = draw_modes(suite, generator(1, "modes"))
        of_gradients = [each["gradients"] for each in modes]
        pairs = zip(suite, of_gradients, strict=True)
        ordinary = [mode for case, mode in pairs if case.kind == "ordinary"]
        for mode in ("", "no_grad", "inference_mode"):
            assert ordinary.count(mode) >= 4
        of_inputs = [each["inputs"] for each in modes]
        assert (of_inputs.count("gaps"), of_inputs.count("changed")) == (1, 1)
        assert min(of_inputs.count(""), of_inputs.count("in a model")) >= 25
        assert len({each["producer"] for each in modes}) == 10
        lists = [{*mode} for mode in of_gradients if isinstance(mode, list)]
        assert all(0 < len(each) < 3 and each <= {"x", "gamma", "beta"} for each in lists)
        assert len({"x" in each for each in lists}) == 2
        assert draw_modes(suite, generator(1, "modes")) == modes
        assert draw_modes(suite, generator(2, "modes")) != modes

    @pytest.mark.parametrize(
        "operation",
        ["add_rms_norm", "group_norm,groups=4", "rms_norm,quant=int8,scale=per-token"],
    )
    def test_of_other_operations(self, operation: str) -> None:
        suite = draw_suite(submission(operation, seed=3, dtypes=("bfloat16",)))
        assert len(suite) >= 20
        assert "normal" in {case.family for case in suite}

    def test_the_recording_tells_neither_the_seed_nor_answers(self, suite: list[Case]) -> None:
        scope = {"dtypes": ["float32"], "level": "score", "also": [], "seed": 0}
        recording = make_recording(suite, planned_calls, patience=1.0, scope=scope)
        text = json.dumps(recording.manifest)
        assert "midpoints" not in text
        wide = [case for case in suite if case.family == "normal" and case.shape[1] > 8]
        for case in wide[:2]:
            assert case.x[0].tobytes() in recording.content
            assert (
                expected(case).wide["y"][0].astype(np.float32).tobytes() not in recording.content
            )
        forget(wide)


SHAPES: dict[str, tuple[int, ...]] = {
    "layer_norm": (16, 1024),
    "rms_norm,gain=zero-centred": (2, 3, 4, 96),
    "add_rms_norm": (300,),
    "layer_norm,groups=4": (6, 128),
    "group_norm,groups=2": (3, 4, 5, 6),
    "instance_norm,gamma=false": (3, 4, 5, 6),
    "rms_norm,over=channels": (4, 32, 3),
    "rms_norm,heads=4": (2, 4, 64),
}


class TestShapes:
    @pytest.mark.parametrize("operation", SHAPES)
    def test_every_call_has_the_shape(self, operation: str) -> None:
        shape = SHAPES[operation]
        suite = draw_suite(submission(operation, seed=1, shapes=(shape,)))
        assert 40 <= len(suite) <= 66
        kinds = {case.kind for case in suite}
        assert kinds - {"sweep"} == {"ordinary", "hard", "special", "subnormal"}
        scope = {"dtypes": ["float32"], "level": "score", "also": [], "seed": 0}
        manifest = make_recording(suite, planned_calls, patience=1.0, scope=scope).manifest
        calls = [*manifest["calls"], *manifest["ones"]]
        every = [each for call in calls for each in (call, *call.get("others", ()))]
        assert {tuple(each["tensors"]["x"][1]) for each in every} == {shape}
        kinds_of_calls = {call["call"][0] for call in manifest["calls"]}
        assert kinds_of_calls == {
            *("plain", "again", "interleaved", "later", "twice", "reversed", "paused")
        }

    def test_are_drawn_by_the_seed(self) -> None:
        shapes = ((16, 1024),)
        one, same, other = (draw_suite(submission(seed=s, shapes=shapes)) for s in (1, 1, 2))
        assert rows_of(one) == rows_of(same)
        assert rows_of(one).isdisjoint(rows_of(other))
        assert [case.kind for case in one].count("sweep") == 8
        for case in one:
            assert not ((case.gamma == 1).all() and (case.beta == 0).all())

    @pytest.mark.parametrize(("rows", "distinct"), [(16, 16), (7, 7), (1024, 128), (186, 93)])
    def test_rows_differ(self, rows: int, distinct: int) -> None:
        """A kernel that computes a few rows for all is wrong."""
        suite = draw_suite(submission(seed=1, shapes=((rows, 512),)))
        several = [len({row.tobytes() for row in case.x}) for case in suite]
        assert max(several) == distinct
        assert all(case.shape == (rows, 512) for case in suite)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
    def test_rows_next_to_midpoints(self, dtype: str) -> None:
        """Repeated columns leave the results where they are."""
        suite = draw_suite(submission(seed=1, shapes=((4, 1024),), dtypes=(dtype,)))
        cases = [case for case in suite if case.family == "next-to-midpoints"]
        assert [*sorted(case.why for case in cases)] == [
            "dx next to midpoints",
            "y next to midpoints",
        ]
        for case in cases:
            name = case.why.partition(" ")[0]
            _, remainders = np.moveaxis(case.operation.exact(case)[name], -1, 0)
            distances = np.abs(np.abs(remainders) - 0.5).min(axis=1)
            assert distances.max() < 2.0**-20

    @pytest.mark.parametrize(
        ("operation", "shape", "message"),
        [
            ("layer_norm", (1024, 1024), "at most 524288 elements, 16384 in a row; got 1024x1024"),
            ("layer_norm", (1, 16385), "16384 in a row; got 1x16385"),
            ("rms_norm,width=64", (4, 65), "64 in a row; got 4x65"),
            ("layer_norm", (7919, 64), "must have a divisor from 2 to 1024; got 7919x64"),
            ("layer_norm", (4, 1), "layer_norm has no x of shape 4x1"),
            ("layer_norm", (4, 0), "whole numbers above 0"),
            ("layer_norm", (), "whole numbers above 0"),
            ("layer_norm", "16x64", "whole numbers above 0"),
            ("layer_norm,groups=4", (4, 66), "has no x of shape 4x66"),
            ("group_norm,groups=4", (4, 66), "has no x of shape 4x66"),
            ("group_norm,groups=4", (4, 6, 5), "has no x of shape 4x6x5"),
            ("rms_norm,heads=4", (4, 6, 5), "has no x of shape 4x6x5"),
            ("layer_norm,axes=3", (2, 4, 3, 3), "not for axes="),
            ("rms_norm,modulate=row", (2, 64), "not for axes=, channels=last and modulate="),
            ("rms_norm,quant=int8", (2, 64), "needs a norm without quant="),
        ],
    )
    def test_refused(self, operation: str, shape: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            tv.score("file.py:name", operation, seed=1, shapes=[shape])


class TestHidden:
    def test_answers_are_permuted(self) -> None:
        case = tv.case("float32-dy-with-a-mean")
        other = hidden(case, generator(5))
        known, answers = expected(case), expected(other)
        for name in ("y", "dx"):
            before, after = (
                sorted(np.sort(np.abs(each.wide[name]), axis=1).tolist())
                for each in (known, answers)
            )
            assert before == after
        for name in ("dgamma", "dbeta"):
            sums, permuted = (np.sort(np.abs(each.wide[name])) for each in (known, answers))
            assert np.array_equal(sums, permuted)
        assert not np.array_equal(known.wide["y"], answers.wide["y"])
        forget([case, other])

    def test_rows_are_contiguous(self) -> None:
        assert hidden(tv.case("float32-mean-1449"), generator(1)).x.flags.c_contiguous

    def test_many_seeds(self) -> None:
        case = tv.case("float32-mean-1449")
        rows = {hidden(case, generator(seed)).x.tobytes() for seed in range(50)}
        assert len(rows) == 50
        assert case.x.tobytes() not in rows

    def test_repeated_rows(self) -> None:
        case = tv.case("float32-1027-rows")
        other = hidden(case, generator(1))
        assert (other.shape, other.repeats) == (case.shape, case.repeats)
        once = case.shape[0] // case.repeats
        assert np.array_equal(other.x[:once], other.x[once : 2 * once])

    def test_settings_stay(self) -> None:
        norm = tv.norm("rms_norm", quant=tv.Quant("int8", scale="static"))
        case = next(each for each in tv.cases("float32", operation=norm) if not each.needs)
        (name,) = norm.inputs_of("setting")
        assert hidden(case, generator(1)).inputs[name] is case.inputs[name]


SEEN = {"operators": ["aten::mean", "aten::mul"], "replaced": []}
ENTRY = {"step": 3, "failure": ""}


@pytest.mark.parametrize(
    ("notes", "entry", "reason"),
    [
        (SEEN, ENTRY, ""),
        (
            {**SEEN, "operators": ["aten::mean", "aten::native_layer_norm"]},
            ENTRY,
            "It calls aten::native_layer_norm of PyTorch, which is forbidden, also while its "
            "file is imported.",
        ),
        (
            {**SEEN, "operators": ["aten::mean", "aten::_weight_norm"], "norms": ["aten::renorm"]},
            ENTRY,
            "It calls aten::_weight_norm, aten::renorm of PyTorch, which is forbidden, also",
        ),
        ({**SEEN, "symbols": ["_ZN2at"]}, ENTRY, "It looks up functions in the libraries"),
        ({**SEEN, "operators": None}, ENTRY, "It stopped the profiler"),
        ({}, ENTRY, "It stopped the profiler"),
        ({}, {**ENTRY, "deaths": 1}, ""),
        (
            {**SEEN, "replaced": ["torch.equal"]},
            ENTRY,
            "It replaces functions of its process: torch.equal.",
        ),
        (SEEN, {**ENTRY, "types": {"y": "Lazy"}}, "y is of the type Lazy"),
        (SEEN, {**ENTRY, "shared": {"y": "x"}}, "y is in the memory of x."),
        ({**SEEN, "threads": ["Thread-1"]}, ENTRY, "It returns before its threads have ended."),
    ],
)
def test_hacks(notes: dict[str, Any], entry: dict[str, Any], reason: str) -> None:
    evidence = Evidence("forbidden", notes, [{"question": ""}, entry])
    found = [each for find in HACKS.values() for each in find(evidence)]
    assert len(found) == bool(reason)
    assert "".join(found).startswith(reason)


def test_norms_may_be_allowed() -> None:
    evidence = Evidence("allowed", {**SEEN, "operators": ["aten::layer_norm"]}, [ENTRY])
    assert not [each for find in HACKS.values() for each in find(evidence)]


def test_json() -> None:
    grades = {"float32": {"y": "stable"}}
    result = Score(
        0.94,
        ("The grade of y in float32 is stable.",),
        "file.py:name",
        ("float32",),
        40,
        1.0,
        grades,
        {"runs": "pass"},
        operation=tv.RMS_NORM,
    )
    content = json.loads(to_json(result))
    assert schema_errors("score-1", content) == []
    assert (content["value"], content["operation"]) == (0.94, "rms_norm")
    assert schema_errors("score-1", {**content, "value": 1.5}) != []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norms": "some"}, "norms must be forbidden or allowed, got 'some'"),
        ({"cases": 3}, "cases must be 30 or above, got 3"),
        ({"seed": -1}, "seed must be 0 or above, got -1"),
        ({"dtypes": ["int8"]}, "dtypes must be of float16, .*; got"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tv.score("file.py:name", **{"seed": 1, **options})


def test_server_without_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork", raising=False)
    with pytest.raises(CannotRunError, match="cannot fork: score one kernel at a time"):
        Server("python")


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("def norm(x, gamma, beta, eps): ...\n")
    with pytest.raises(CannotRunError, match="PyTorch cannot be imported there: No module named"):
        tv.score(f"{file}:norm", seed=1)


@pytest.mark.parametrize(
    ("symbol", "seen"),
    [
        ("_ZN2at6native14layer_norm_cpuERKNS_6TensorE", True),
        ("_ZN2at20enableRecordFunctionEb", True),
        ("_Z16THPVariable_WrapN2at10TensorBaseE", True),
        ("dlsym", True),
        ("vec2atan", False),
        ("my_norm_5torch", False),
    ],
)
def test_symbols_of_pytorch(symbol: str, seen: bool) -> None:
    """A function of a kernel's own library may have any name."""
    assert bool(SYMBOLS.match(symbol)) is seen
