"""A report survives JSON, and JSON is strict."""

import json
import math
from typing import NoReturn

from demo.reports import committed
from truenorm.demo.report import Curve, NamedRow, Report, Sweep, from_json, to_json

REPORT = Report(
    machine={"numpy": "2.4"},
    size=3,
    rows=1,
    eps=1e-5,
    seed=0,
    sweeps=[
        Sweep(
            "float32", 2.0**-24, [1.0, 10.0], [Curve("a", "y", [0.5, math.nan], [2.0, 3.0], 1.0)]
        )
    ],
    named=[NamedRow("n", "float32", "[1]", "y", 4, "w", "r", [0.5], {"a": [math.inf]})],
)


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def test_there_and_back() -> None:
    assert repr(from_json(to_json(REPORT))) == repr(REPORT)


def test_numbers_that_are_not_finite_are_strings() -> None:
    found = json.loads(to_json(REPORT), parse_constant=refuse)
    assert found["sweeps"][0]["curves"][0]["relative"] == [0.5, "nan"]
    assert found["named"][0]["returned"] == {"a": ["inf"]}


def test_the_committed_report_says_where_it_comes_from() -> None:
    report = committed()
    assert {"numpy", "python", "truenorm", "machine", "date"} <= set(report.machine)
    assert [sweep.dtype for sweep in report.sweeps] == ["float32", "float64"]


def test_an_output_that_an_algorithm_does_not_have() -> None:
    sweep = REPORT.sweeps[0]
    assert sweep.curve("a", "y") is sweep.curves[0]
    assert sweep.curve("a", "dx") is None
