"""The judge in pytest: each case is a test of its own.

pytest imports this wherever truenorm is installed, so it imports nothing itself. A test with the
marker has the judge imported; without one, a session has two more options, and that is all.
"""

from typing import Any

import pytest

__all__ = [
    "pytest_addoption",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_generate_tests",
    "pytest_report_header",
    "pytest_runtest_makereport",
    "pytest_terminal_summary",
]

MARKER, ARGUMENT = "truenorm", "truenorm_case"
FRESH, OPTION = "fresh", "truenorm_seed"
PROPERTY = "truenorm-baseline"
USAGE = "@pytest.mark.truenorm(subject) on a test that takes truenorm_case"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what is chosen for a run."""
    group = parser.getgroup("truenorm")
    group.addoption(
        "--truenorm-level",
        choices=("quick", "full"),
        help="how many cases @pytest.mark.truenorm makes, whatever the markers say",
    )
    group.addoption(
        "--truenorm-seed",
        type=_seed,
        metavar="N|fresh",
        help="make them of other random numbers: those of a seed, or of one that is drawn, and "
        "printed in the header",
    )


def _seed(text: str) -> int | str:
    """Return a seed, or what asks for a new one."""
    if text != FRESH and not text.isdecimal():
        raise pytest.UsageError(f"--truenorm-seed is {text!r}; give a number, or {FRESH}")
    return text if text == FRESH else int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and draw a seed; a worker of pytest-xdist is given that."""
    config.addinivalue_line(
        "markers",
        "truenorm(subject, *, operation, require, recipe, level, dtypes, cases, baseline): judge "
        "a norm, one test a case, in a test that takes truenorm_case and calls its check()",
    )
    given = getattr(config, "workerinput", {})
    if OPTION in given:
        config.option.truenorm_seed = given[OPTION]
    elif config.option.truenorm_seed == FRESH:
        import secrets

        config.option.truenorm_seed = 1000 + secrets.randbelow(2**31)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker the seed: all must have the same tests."""
    node.workerinput[OPTION] = node.config.option.truenorm_seed


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what was chosen, so that a run can be repeated."""
    level, seed = config.option.truenorm_level, config.option.truenorm_seed
    said = [f"level {level}"] if level else []
    if seed is not None:
        said.append(f"seed {seed} (--truenorm-seed {seed} makes the same cases)")
    return f"truenorm: {', '.join(said)}" if said else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the tests of a marker."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    takes = ARGUMENT in metafunc.fixturenames
    if marker is None and not takes:
        return
    if marker is None or not takes:
        missing = "has no marker" if marker is None else f"does not take {ARGUMENT}"
        pytest.fail(f"{metafunc.definition.name} {missing}: write {USAGE}", pytrace=False)
    from truenorm.pytest_plugin.cases import judged_cases

    option = metafunc.config.option
    try:
        found = judged_cases(
            marker,
            metafunc.definition.path,
            level=option.truenorm_level,
            seed=option.truenorm_seed,
        )
    except (TypeError, ValueError) as refused:
        pytest.fail(f"@pytest.mark.truenorm: {refused}", pytrace=False)
    metafunc.parametrize(ARGUMENT, found, ids=str)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: Any, call: pytest.CallInfo[None]) -> None:
    """Put what a test says of its baseline into its report, which a worker sends home."""
    if call.when == "call" and hasattr(item, "callspec") and ARGUMENT in item.callspec.params:
        item.user_properties += item.callspec.params[ARGUMENT].properties


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what baselines know, and what has vanished."""
    properties = [
        (report.nodeid.partition("[")[0], text)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in report.user_properties
        if name == PROPERTY
    ]
    if properties:
        from truenorm.pytest_plugin.cases import lines

        if said := lines(properties):
            terminalreporter.section("truenorm, against the baseline")
            terminalreporter.write_line("\n".join(said))
