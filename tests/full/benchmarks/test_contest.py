"""The contest counts wrong elements of a wrong contestant, and none of a right one."""

import numpy as np

from benchmarks.contest import CAST, Tally, contest
from shared.promise.checking import OUTPUTS
from shared.promise.families import Case, usual_case
from shared.promise.hard_cases import hard_cases

FLOAT32 = np.dtype(np.float32)


def tally_of(tallies: dict[str, Tally | None], name: str) -> Tally:
    tally = tallies[name]
    assert tally is not None
    return tally


def test_textbook_is_wrong_far_from_zero() -> None:
    """Near 1e7 an ulp of float32, hence the error of a mean, is as large as the spread."""
    tallies = contest(FLOAT32, [(usual_case("offset", 7, 67, FLOAT32), OUTPUTS)])
    textbook = tally_of(tallies, "textbook")
    assert [textbook.compared[each] for each in OUTPUTS] == [469, 469, 67, 67]
    assert textbook.wrong["y"] > 400
    assert textbook.wrong["offset"] == sum(textbook.wrong[each] for each in OUTPUTS)
    correct = tally_of(tallies, "truenorm correct")
    assert sum(correct.wrong.values()) == 0
    assert correct.compared == textbook.compared
    assert correct.other_zeros == 0
    # Float64, then cast, is correct nearly everywhere.
    assert tally_of(tallies, CAST).wrong["y"] * 20 < textbook.wrong["y"]


def test_float64_fails_beside_a_boundary() -> None:
    suite = [(case, ["y"]) for case in hard_cases("y", FLOAT32, 500)]
    tallies = contest(FLOAT32, suite)
    cast = tally_of(tallies, CAST)
    assert cast.wrong["y"] > cast.compared["y"] // 5
    assert tally_of(tallies, "truenorm correct").wrong["y"] == 0


def test_signs_of_zero_and_nan_are_not_errors() -> None:
    """Where x = 0 and gamma = -1 the textbook has y = -0; where eps = 0 too, y is some NaN."""
    zero, minus = np.zeros((1, 3), np.float32), -np.ones(3, np.float32)
    case = Case("float32 zero", zero, minus, -zero[0], zero + 1, 1.0)
    tallies = contest(FLOAT32, [(case, ["y"])])
    for name in ("textbook", CAST):
        tally = tally_of(tallies, name)
        assert (tally["y"], tally.other_zeros) == ("0 of 3", 3)
    undefined = contest(FLOAT32, [(Case("float32 zero", zero, None, None, zero, 0.0), ["y"])])
    assert tally_of(undefined, "textbook")["y"] == "0 of 3"
