"""The pytest plugin: ``@pytest.mark.truenorm`` makes each verdict of the judge a test.

pytest imports this module wherever truenorm is installed, so it imports only pytest. The judge is
imported for a test with the marker.
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
    """Add the options of the command line."""
    group = parser.getgroup("truenorm")
    group.addoption(
        "--truenorm-level",
        choices=("quick", "full"),
        help="number of cases of @pytest.mark.truenorm; overrides the level of the markers",
    )
    group.addoption(
        "--truenorm-seed",
        type=_seed,
        metavar="N|fresh",
        help="draw the cases with this seed; 'fresh' chooses one and prints it in the header",
    )


def _seed(text: str) -> int | str:
    """Return a seed, or `FRESH` for a random one."""
    if text != FRESH and not text.isdecimal():
        raise pytest.UsageError(f"--truenorm-seed must be a number or {FRESH}; got {text!r}")
    return text if text == FRESH else int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and choose a seed; a worker of pytest-xdist gets its parent's."""
    config.addinivalue_line(
        "markers",
        "truenorm(subject, *, operation, require, recipe, strict, level, dtypes, cases, "
        "baseline, batch, time): judge a norm, one test a verdict, in a test that takes "
        "truenorm_case and calls its check()",
    )
    from_parent = getattr(config, "workerinput", {})
    if OPTION in from_parent:
        config.option.truenorm_seed = from_parent[OPTION]
    elif config.option.truenorm_seed == FRESH:
        import secrets

        config.option.truenorm_seed = 1000 + secrets.randbelow(2**31)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the seed to a worker of pytest-xdist: all workers must collect the same tests."""
    node.workerinput[OPTION] = node.config.option.truenorm_seed


def pytest_report_header(config: pytest.Config) -> str | None:
    """Print the options, so that a run can be repeated."""
    level, seed = config.option.truenorm_level, config.option.truenorm_seed
    options = [f"level {level}"] if level else []
    if seed is not None:
        options.append(f"seed {seed} (--truenorm-seed {seed} makes the same cases)")
    return f"truenorm: {', '.join(options)}" if options else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with the verdicts of its marker."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    takes = ARGUMENT in metafunc.fixturenames
    if marker is None and not takes:
        return
    if marker is None or not takes:
        missing = "has no marker" if marker is None else f"does not take {ARGUMENT}"
        pytest.fail(f"{metafunc.definition.name} {missing}: write {USAGE}", pytrace=False)
    from truenorm.pytest_plugin.verdicts import judged_verdicts

    option = metafunc.config.option
    try:
        judged = judged_verdicts(
            marker,
            metafunc.definition.path,
            level=option.truenorm_level,
            seed=option.truenorm_seed,
        )
    except (TypeError, ValueError) as error:
        pytest.fail(f"@pytest.mark.truenorm: {error}", pytrace=False)
    metafunc.parametrize(ARGUMENT, judged, ids=str)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: Any, call: pytest.CallInfo[None]) -> None:
    """Add the comparison with the baseline to the report, which a worker sends to its parent."""
    if call.when == "call" and hasattr(item, "callspec") and ARGUMENT in item.callspec.params:
        item.user_properties += item.callspec.params[ARGUMENT].properties


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the known findings, and those that have vanished."""
    properties = [
        text
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in report.user_properties
        if name == PROPERTY
    ]
    if properties:
        from truenorm.pytest_plugin.verdicts import summary_lines

        if lines := summary_lines(properties):
            terminalreporter.section("truenorm, against the baseline")
            terminalreporter.write_line("\n".join(lines))
