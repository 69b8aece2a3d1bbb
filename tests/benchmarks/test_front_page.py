"""The table of the README is what the commands measured."""

from benchmarks import front_page
from benchmarks.pages import filled


def test_the_readme_holds_what_the_files_say() -> None:
    page = front_page.PAGE.read_text(encoding="utf-8")
    made = front_page.front(front_page.results("peers"), front_page.results("scoreboard"))
    assert filled(page, {"front": made}) == page


def test_a_time_is_divided_by_that_of_pytorch() -> None:
    shape = front_page.SHAPE
    figures = [
        {"shape": shape, "direction": direction, "contestant": name, "p50": 2.0 if ours else 4.0}
        for direction in ("forward", "backward")
        for name in front_page.CONTESTANTS.values()
        for ours in [name.startswith("truenorm fast")]
        if name != "thinc"
    ]
    machine = {"date": "today", "cpu": "one", "cores": "2"}
    subjects = {
        key: {"grades": [{"dtype": "float32", "output": "y", "grade": "stable"}]}
        for key in front_page.CONTESTANTS
    }
    table = front_page.front(
        {"figures": figures, "machine": machine, "quiet": True},
        {"subjects": subjects, "machine": machine},
    )
    assert "| truenorm fast | stable | none | none | 0.50 | 0.50 |" in table
    assert "| thinc | stable | none | none | none | none |" in table
    assert "not quiet" not in table
