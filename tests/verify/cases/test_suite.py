"""The cases of a type: their names, and what there is among them."""

import itertools
from collections import Counter

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.cases.families import RANDOM_WIDTHS, WIDTHS, ordinary, random_widths
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS


@pytest.mark.parametrize("level", ["quick", pytest.param("full", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", FORMATS)
def test_names_are_unique_and_lead_back_to_the_case(dtype: str, level: str) -> None:
    also = list(tv.EXTENSIONS)
    found = tv.cases(dtype, level, also)
    assert max(Counter(map(str, found)).values()) == 1
    assert {need for each in found for need in each.needs} <= set(also)
    assert all(not each.needs for each in tv.cases(dtype, level))
    for each in found[:: len(found) // 7]:
        again = tv.case(each.name)
        assert again.x.tobytes() == each.x.tobytes()
        assert again.eps == each.eps
    assert all(each.why for each in found)


def test_the_default_scope_has_an_eps_that_float32_has() -> None:
    for dtype in FORMATS:
        for each in tv.cases(dtype, "full"):
            assert each.eps == float(np.float32(each.eps)) > 0
            assert each.gamma is not None
            assert each.beta is not None


def test_ordinary_input_hides_nothing() -> None:
    """Neither gamma nor dy is constant, and no width is a power of two alone."""
    ordinary = [each for each in tv.cases("float32") if each.kind == "ordinary"]
    assert {2, 3, 67, 1025} < {each.x.shape[1] for each in ordinary}
    assert max(len(each.x) for each in ordinary) > 65_536
    for each in ordinary:
        assert each.gamma is not None
        assert np.ptp(each.gamma) > 0
        assert np.ptp(each.dy) > 0
        assert abs(float(each.dy.mean())) > 0.05


def test_widths_are_drawn_from_the_seed() -> None:
    """The same each time, other ones for each seed and type, and none that the list has."""
    for dtype in FORMATS:
        assert list(random_widths(dtype, 0)) == list(random_widths(dtype, 0))
    drawn = [set(random_widths(dtype, seed)) for dtype in FORMATS for seed in range(3)]
    assert all(len(each) == len(RANDOM_WIDTHS) for each in drawn)
    assert all(one != other for one, other in itertools.combinations(drawn, 2))
    listed = {width for each in WIDTHS.values() for width in each}
    assert all(each.isdisjoint(listed) for each in drawn)
    quick, full = ({each.x.shape[1] for each in tv.cases("float32", k)} for k in LEVELS)
    assert drawn[2 * 3] <= quick
    assert drawn[2 * 3] | drawn[2 * 3 + 1] | drawn[2 * 3 + 2] <= full


def test_a_sweep_reaches_the_limit_of_the_type() -> None:
    for dtype, top in {"float16": 1e3, "bfloat16": 1e2, "float32": 1e7, "float64": 1e15}.items():
        offsets = [abs(float(c.x.mean())) for c in tv.cases(dtype) if c.kind == "sweep"]
        assert max(offsets) > 0.9 * top


def _bits(case: tv.Case) -> bytes:
    return b"".join(each.tobytes() for each in case.inputs.values() if each is not None)


def test_another_seed_is_the_same_kinds_of_other_numbers() -> None:
    """But for named cases and those next to midpoints, whose numbers are chosen."""
    today = {each.name: each for each in tv.cases("float16")}
    seeded = tv.cases("float16", seed=12345)
    assert len(seeded) == len(today)
    fixed = [each for each in seeded if each.name in today]
    drawn = [each for each in seeded if each.name not in today]
    assert all(_bits(each) == _bits(today[each.name]) for each in fixed)
    assert all(each.name.endswith("-12345") for each in drawn)
    assert len(drawn) > len(fixed)
    known = {_bits(each) for each in today.values()}
    assert all(_bits(each) not in known for each in drawn)
    assert Counter(each.kind for each in drawn) + Counter(each.kind for each in fixed) == Counter(
        each.kind for each in today.values()
    )
    again = tv.case("float16-offset-10-4x67-12345")
    assert [_bits(again)] == [_bits(each) for each in drawn if each.name == again.name]
    assert again.seeded


def _made_of(case: tv.Case) -> tuple[object, ...]:
    return _bits(case), case.eps, case.kind, case.family, case.needs, case.layout, case.repeats


def test_a_width_has_one_case_of_a_seed_at_both_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are drawn, too: the list before them is longer at one level."""
    for level in LEVELS:
        monkeypatch.setitem(WIDTHS, level, tuple(size for size in WIDTHS[level] if size < 20))
    found: dict[str, tuple[object, ...]] = {}
    for level, seed in [*itertools.product(["quick"], range(4)), ("full", 0), ("full", 1)]:
        some = ordinary(tv.LAYER_NORM, "float16", level, seed)
        for each in itertools.takewhile(lambda case: case.family == "normal", some):
            assert found.setdefault(each.name, _made_of(each)) == _made_of(each), each.name
    assert len(found) == 4 * (sum(map(len, WIDTHS.values())) + len(RANDOM_WIDTHS))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_name_leads_back_to_its_case(dtype: str) -> None:
    for level, seed in itertools.product(LEVELS, range(4)):
        for each in tv.cases(dtype, level, list(tv.EXTENSIONS), seed=seed):
            assert _made_of(tv.case(each.name)) == _made_of(each), each.name


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ValueError, match="seed is -1"):
        tv.cases("float32", seed=-1)
