"""A report survives JSON, and the committed one says where it comes from."""

import math

from demo.reports import committed
from truenorm.demo.report import Curve, NamedRow, Report, Sweep, from_json
from truenorm.tools import strict_json

CURVE = Curve("a", "y", [0.5, math.nan], [2.0, 3.0], 1.0)
SWEEP = Sweep("float32", 2.0**-24, [1.0, 10.0], [CURVE])
NAMED = NamedRow(
    name="n",
    dtype="float32",
    row="[1]",
    why="w",
    remedy="r",
    exact=[0.5],
    returned={"a": [math.inf]},
)
REPORT = Report({"numpy": "2.4"}, 3, 1, 1e-5, 0, [SWEEP], [NAMED])


def test_there_and_back() -> None:
    assert repr(from_json(strict_json.dumps(REPORT))) == repr(REPORT)


def test_the_committed_report_says_where_it_comes_from() -> None:
    report = committed()
    assert {"numpy", "python", "truenorm", "machine", "date"} <= set(report.machine)
    assert [sweep.dtype for sweep in report.sweeps] == ["float32", "float64"]


def test_curves_of_an_output() -> None:
    assert SWEEP.of("y") == {"a": CURVE}
    assert SWEEP.of("dx") == {}
