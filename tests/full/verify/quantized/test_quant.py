"""Options of `Quant`: refusals, texts and what they mean."""

from typing import Any

import pytest

import truenorm.verify as tv
from truenorm.verify.norms.quant import FLOORS, NAMES, POWERS
from truenorm.verify.operations import parse_operation

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"type": "e3m4"}, "type of quant must be one of e4m3fn, e4m3fnuz, e5m2, int8, mxfp8"),
    ({"type": "e2m1"}, "type of quant must be one of"),
    ({"type": "e8m0"}, "type of quant must be one of"),
    ({"direction": "times"}, "direction of quant must be one of divide, multiply; got 'times'"),
    ({"power": "round"}, "power of quant must be one of ceil, floor, even, ceil-of-amax, nearest"),
    ({"floor": "1e-3"}, "floor of quant must be one of any, none, 1/"),
    ({"nan": "raise"}, "nan of quant must be one of propagate, clamp; got 'raise'"),
    ({"packed": "low"}, "packed of quant must be one of low-first, high-first; got 'low'"),
    ({"amax": "yes"}, "amax of quant must be one of False, True; got 'yes'"),
    ({"scale": "dynamic"}, "scale of quant must be static, per-token, or per-N"),
    ({"scale": "per-"}, "scale of quant must be"),
    ({"scale": "per-0"}, "scale of quant must be"),
    ({"scale": "per-1"}, "scale of quant must be"),
    ({"scale": "per--4"}, "scale of quant must be"),
    ({"scale": "per-65537"}, "scale of quant must be"),
    ({"scale": "128"}, "scale of quant must be"),
    ({"type": "mxfp8", "scale": "per-token"}, "scale=per-token of quant needs a type without"),
    ({"type": "nvfp4", "scale": "per-16"}, "scale=per-16 of quant needs a type without"),
    ({"scale": "per-token", "direction": "multiply"}, "direction=multiply of quant needs"),
    ({"type": "nvfp4", "direction": "multiply"}, "direction=multiply of quant needs"),
    ({"power": "floor"}, "power=floor of quant needs mxfp8 or mxfp4; got e4m3fn"),
    ({"type": "nvfp4", "power": "floor"}, "power=floor of quant needs mxfp8 or mxfp4; got nvfp4"),
    ({"floor": "float32 eps"}, "floor=float32 eps of quant needs a float32 scale"),
    ({"type": "mxfp8", "floor": "none"}, "floor=none of quant needs a float32 scale"),
    ({"packed": "high-first"}, "packed=high-first of quant needs codes of four bits; got e4m3fn"),
    ({"type": "mxfp8", "packed": "high-first"}, "packed=high-first of quant needs codes of four"),
    ({"qmax": 224.0}, "qmax=224.0 of quant needs a scale that is returned; got e4m3fn"),
    ({"type": "mxfp8", "qmax": 224.0}, "qmax=224.0 of quant needs a scale that is returned"),
    ({"scale": "per-token", "qmax": 480.0}, "qmax must be a value of e4m3fn, above 0 and at most"),
    ({"scale": "per-token", "qmax": 225.0}, "qmax must be a value of e4m3fn.* got 225"),
    ({"scale": "per-token", "qmax": -224.0}, "qmax must be a value of e4m3fn"),
    ({"scale": "per-token", "qmax": float("nan")}, "qmax must be a value of e4m3fn"),
    ({"scale": "per-token", "qmax": float("inf")}, "qmax must be a value of e4m3fn"),
    ({"type": "int8", "scale": "per-token", "qmax": 128.0}, "qmax must be a value of int8"),
    ({"type": "int8", "scale": "per-token", "qmax": 126.5}, "qmax must be a value of int8"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tv.Quant(**options)


@pytest.mark.parametrize(("spec", "message"), [
    ("rms_norm,scale=per-token", "scale needs quant=, such as quant=e4m3fn"),
    ("rms_norm,quant=e4m3fn,amax=1", "amax must be true or false; got '1'"),
    ("rms_norm,quant=e4m3fn,scale=per-token,qmax=many", "qmax must be a number; got 'many'"),
    ("rms_norm,quant=e4m3fn,result=float32", "result=float32 and quant=e4m3fn exclude"),
    ("rms_norm,quant=e4m3fn,scales=per-token", "operation must be a name"),
    ("rms_norm,quant=", "type of quant must be one of"),
    ("rms_norm,quant=e4m3fn,sum=unrounded", "needs add_rms_norm"),
])  # fmt: skip
def test_texts_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_operation(spec)


EVERY = [
    *(tv.Quant(each) for each in NAMES),
    *(tv.Quant("int8", scale=each) for each in ("per-token", "per-2", "per-128", "per-65536")),
    *(tv.Quant("mxfp4", power=each) for each in POWERS),
    *(tv.Quant("e5m2", scale="per-token", floor=each) for each in ("any", "none", *FLOORS)),
    tv.Quant("e4m3fn", direction="multiply", amax=True),
    tv.Quant("e4m3fnuz", scale="per-token", qmax=224.0, nan="clamp"),
    tv.Quant("e5m2", scale="per-64", qmax=2.0**-16),
    tv.Quant("nvfp4", packed="high-first", nan="clamp"),
]


@pytest.mark.parametrize("quant", EVERY, ids=str)
def test_an_operation_is_that_of_its_text(quant: tv.Quant) -> None:
    for options in ({}, {"gain": "zero-centred", "parameters": "float32", "sum": "unrounded"}):
        norm = tv.norm("add_rms_norm", quant=quant, **options)  # type: ignore[arg-type]
        again = parse_operation(norm.spec)
        assert again is norm
        assert again.quant == quant
        # Answers of two operations are told apart by the variant.
        assert all(f"{key}={text}" in norm.variant for key, text in quant.options.items())


def test_options_are_changed_one_by_one() -> None:
    norm = parse_operation("rms_norm,quant=e4m3fn,scale=per-token")
    changed = parse_operation(",scale=per-128", norm)
    assert changed is parse_operation("rms_norm,quant=e4m3fn,scale=per-128")


SIGNATURES = {
    "e4m3fn": (["scale"], ["codes"]),
    "int8,amax=true": (["scale"], ["codes", "amax"]),
    "e5m2,scale=per-token": ([], ["codes", "scale"]),
    "e4m3fn,scale=per-48": ([], ["codes", "scale"]),
    "mxfp8": ([], ["codes", "scale"]),
    "mxfp4": ([], ["codes", "scale"]),
    "nvfp4": (["global_scale"], ["codes", "scale"]),
}
"""By options: the settings after eps, and the results."""


@pytest.mark.parametrize("spec", SIGNATURES)
def test_inputs_and_outputs(spec: str) -> None:
    settings, results = SIGNATURES[spec]
    for name in ("rms_norm", "add_rms_norm"):
        norm = parse_operation(f"{name},quant={spec}")
        adds = name.startswith("add")
        assert norm.inputs_of("setting") == settings
        assert norm.inputs_of("data") == (["x", "residual"] if adds else ["x"])
        assert norm.outputs_of(backward=False) == ([*results, "sum"] if adds else results)
        assert not norm.outputs_of(backward=True)


@pytest.mark.parametrize(("spec", "codes", "scale"), [
    ("e4m3fn,scale=per-token", (3, 96), (3, 1)),
    ("e4m3fn,scale=per-48", (3, 96), (3, 2)),
    ("e4m3fn,scale=per-64", (3, 96), (3, 2)),  # the last group has 32 elements
    ("mxfp8", (3, 96), (3, 3)),
    ("mxfp4", (3, 48), (3, 3)),
    ("nvfp4", (3, 48), (3, 6)),
])  # fmt: skip
def test_shapes_of_results(spec: str, codes: tuple[int, int], scale: tuple[int, int]) -> None:
    norm = parse_operation(f"rms_norm,quant={spec}")
    assert norm.result_shapes("codes", (3, 96))[0] == codes
    assert norm.result_shapes("scale", (3, 96))[0] == scale
