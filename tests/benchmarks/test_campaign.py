"""The table of the campaign is what its file says, and that is what the issue asked for."""

import json
from typing import Any

from benchmarks import campaign, campaign_subjects

PUBLISHED: dict[str, Any] = json.loads(campaign.RESULTS.read_text(encoding="utf-8"))


def test_the_page_is_the_file() -> None:
    assert campaign.PAGE.read_text(encoding="utf-8") == campaign.page(PUBLISHED)


def test_everybody_is_in_the_file() -> None:
    """In the place of "native" the file may have "fused", the backend before it."""
    names = [getattr(campaign_subjects, name).name for name in campaign_subjects.__all__]
    published = [each["subject"].replace("fused", "native") for each in PUBLISHED["campaigns"]]
    assert published == names
    for each in PUBLISHED["campaigns"]:
        assert {result["dtype"] for result in each["results"]} == set(campaign_subjects.DTYPES)


def test_ten_million_elements_and_none_is_wrong() -> None:
    total = PUBLISHED["total"]
    assert total["elements"] > total["answers"] > 1e7
    for each in PUBLISHED["campaigns"]:
        assert (each["wrong"], each["failed"], each["not_run"]) == (0, 0, 0)
        assert {result["grade"] for result in each["results"]} == {"correct"}
    for name in ("elements", "answers", "cases"):
        assert total[name] == sum(each[name] for each in PUBLISHED["campaigns"])
