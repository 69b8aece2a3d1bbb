"""The way of a subject through the judge: a reader of the code opens few files, and few twice."""

from functools import cache
from pathlib import Path

import pytest

from benchmarks.trace import WAYS, way

MOST = {
    "tv.verify(subject)": (4, 4),
    "truenorm verify check.py:subject": (10, 8),
    "truenorm verify check.py:kernel": (12, 11),
}


@cache
def steps_of(name: str) -> list[tuple[str, list[str]]]:
    return way(WAYS[name], Path(__file__).parents[3])


@pytest.mark.parametrize("name", WAYS)
def test_a_subject_passes_few_files_and_few_twice(name: str) -> None:
    steps = steps_of(name)
    files = {file for file, _ in steps}
    assert len(files) <= MOST[name][0]
    assert len(steps) - len(files) <= MOST[name][1]


def test_the_way_leads_from_the_command_to_the_call_of_the_kernel() -> None:
    first, *_, last = steps_of("truenorm verify check.py:subject")
    assert first[0].startswith("cli/")
    assert "ArrayCaller.forward" in last[1]
