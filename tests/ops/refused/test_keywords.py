"""Keyword arguments that other libraries have: the message says what they are named here."""

import inspect
from typing import Any

import pytest

import truenorm as tn
from ops.refusals import ROW, Forward, X, says

OTHER_NAMES = {
    "weight": "the scale is named gamma",
    "bias": "the shift is named beta",
    "normalized_shape": "the axes to normalize are named by axis, not by their lengths",
    "epsilon": "it is named eps",
}
LAYER_NORMS: list[Forward] = [tn.layer_norm, tn.layer_norm_forward]
RMS_NORMS: list[Forward] = [tn.rms_norm, tn.rms_norm_forward]


def name_of(function: Forward) -> str:
    return function.__name__


@pytest.mark.parametrize("function", LAYER_NORMS + RMS_NORMS, ids=name_of)
@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_of_other_libraries(function: Forward, name: str) -> None:
    hint = OTHER_NAMES[name]
    if name == "bias" and function in RMS_NORMS:
        hint = "RMSNorm has no shift"
    words = f"{name_of(function)}() got an unexpected keyword argument {name!r}: {hint}"
    for value in (ROW, None):
        with pytest.raises(TypeError, match=f"^{says(words)}$"):
            function(X, **{name: value})


@pytest.mark.parametrize("function", RMS_NORMS, ids=name_of)
def test_rms_norm_has_no_beta(function: Forward) -> None:
    words = f"{name_of(function)}() got an unexpected keyword argument 'beta': RMSNorm has no"
    with pytest.raises(TypeError, match=says(words)):
        function(X, beta=ROW)


@pytest.mark.parametrize("function", LAYER_NORMS + RMS_NORMS, ids=name_of)
def test_any_other_name(function: Forward) -> None:
    """As Python says it."""
    words = f"{name_of(function)}() got an unexpected keyword argument 'roundign'"
    options: dict[str, Any] = {"roundign": "fast", "weight": ROW}
    with pytest.raises(TypeError, match=f"^{says(words)}$"):
        function(X, **options)


@pytest.mark.parametrize("function", LAYER_NORMS + RMS_NORMS, ids=name_of)
def test_the_signature_shows_documented_arguments_alone(function: Forward) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert {each.kind for each in parameters} == {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }


def test_type_checkers_refuse_them_too() -> None:
    with pytest.raises(TypeError, match="the scale is named gamma"):
        tn.layer_norm(X, weight=ROW)  # type: ignore[arg-type]
