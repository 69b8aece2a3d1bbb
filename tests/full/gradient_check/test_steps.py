"""The step check blames the line that has the mistake, and no other."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.gradient_check.pairs import Array, data

EPS = 1e-5
Gradients = dict[str, Any]
Lines = Mapping[str, Callable[..., Any]]
"""The lines of a backward pass, by gradient: functions of the values and of earlier gradients."""


def mean_of(x: Array) -> Array:
    return np.asarray(x.mean(axis=-1, keepdims=True))


def sum_of(x: Array) -> Array:
    return np.asarray(x.sum(axis=-1, keepdims=True))


LAYER_NORM: Lines = {
    "mean": lambda x: mean_of(x),
    "var": lambda x, mean: mean_of((x - mean) ** 2),
    "xhat": lambda x, mean, var: (x - mean) / np.sqrt(var + EPS),
    "y": lambda xhat, gamma, beta: gamma * xhat + beta,
}
LAYER_NORM_LINES: Lines = {
    "dgamma": lambda v: (v["dy"] * v["xhat"]).sum(axis=0),
    "dbeta": lambda v: v["dy"].sum(axis=0),
    "dxhat": lambda v: v["dy"] * v["gamma"],
    "dvar": lambda v: -0.5 * sum_of(v["dxhat"] * v["c"]) * v["rstd"] ** 3,
    "dmean": lambda v: -v["rstd"] * sum_of(v["dxhat"]) - 2 * v["dvar"] * mean_of(v["c"]),
    "dx": lambda v: v["dxhat"] * v["rstd"] + (2 * v["c"] * v["dvar"] + v["dmean"]) / 6,
}
ONE_PASS: Lines = {**LAYER_NORM, "var": lambda x, mean: mean_of(x**2) - mean**2}
ONE_PASS_LINES: Lines = {
    **LAYER_NORM_LINES,
    "dmean": lambda v: -v["rstd"] * sum_of(v["dxhat"]) - 2 * v["dvar"] * v["mean"],
    "dx": lambda v: v["dxhat"] * v["rstd"] + (2 * v["x"] * v["dvar"] + v["dmean"]) / 6,
}
RMS_NORM: Lines = {
    "rstd": lambda x: 1 / np.sqrt(mean_of(x**2) + EPS),
    "xhat": lambda x, rstd: x * rstd,
    "y": lambda xhat, gamma: gamma * xhat,
}
RMS_NORM_LINES: Lines = {
    "dgamma": lambda v: (v["dy"] * v["xhat"]).sum(axis=0),
    "dxhat": lambda v: v["dy"] * v["gamma"],
    "drstd": lambda v: sum_of(v["dxhat"] * v["x"]),
    "dx": lambda v: v["dxhat"] * v["rstd"] - v["drstd"] * v["rstd"] ** 3 * v["x"] / 6,
}
DERIVATIONS = {
    "layer norm": (LAYER_NORM, LAYER_NORM_LINES),
    "layer norm, variance in one pass": (ONE_PASS, ONE_PASS_LINES),
    "RMSNorm": (RMS_NORM, RMS_NORM_LINES),
}
MISTAKES: dict[str, tuple[str, str, Callable[[Gradients], Any]]] = {
    "dxhat without gamma": ("layer norm", "dxhat", lambda v: v["dy"]),
    "dvar without 1/2": ("layer norm", "dvar",
        lambda v: -sum_of(v["dxhat"] * v["c"]) * v["rstd"] ** 3),
    "dvar with rstd**2": ("layer norm", "dvar",
        lambda v: -0.5 * sum_of(v["dxhat"] * v["c"]) * v["rstd"] ** 2),
    "dmean with a wrong sign": ("layer norm", "dmean", lambda v: v["rstd"] * sum_of(v["dxhat"])),
    "dmean as a mean": ("layer norm", "dmean", lambda v: -v["rstd"] * mean_of(v["dxhat"])),
    "dmean without the path through var":
        ("layer norm, variance in one pass", "dmean", lambda v: -v["rstd"] * sum_of(v["dxhat"])),
    "dx without the direct path":
        ("layer norm", "dx", lambda v: (2 * v["c"] * v["dvar"] + v["dmean"]) / 6),
    "dx without the path through var":
        ("layer norm", "dx", lambda v: v["dxhat"] * v["rstd"] + v["dmean"] / 6),
    "dx without the path through mean":
        ("layer norm", "dx", lambda v: v["dxhat"] * v["rstd"] + 2 * v["c"] * v["dvar"] / 6),
    "dgamma without xhat": ("layer norm", "dgamma", lambda v: v["dy"].sum(axis=0)),
    "dbeta of one row": ("layer norm", "dbeta", lambda v: v["dy"][0]),
    "dgamma of RMSNorm with x": ("RMSNorm", "dgamma", lambda v: (v["dy"] * v["x"]).sum(axis=0)),
    "drstd as a mean": ("RMSNorm", "drstd", lambda v: mean_of(v["dxhat"] * v["x"])),
    "dx of RMSNorm without rstd": ("RMSNorm", "dx", lambda v: v["dxhat"] * v["rstd"]),
}  # fmt: skip


def check(name: str, changed: Lines | None = None, **options: Any) -> tn.StepsCheck:
    """Check a derivation with some lines changed."""
    steps, lines = DERIVATIONS[name]

    def gradients(**values: Array) -> Gradients:
        v: Gradients = dict(values)
        if "var" in v:
            v |= {"c": v["x"] - v["mean"], "rstd": 1 / np.sqrt(v["var"] + EPS)}
        for gradient, line in {**lines, **(changed or {})}.items():
            v[gradient] = line(v)
        return {gradient: v[gradient] for gradient in lines}

    def layer_norm(
        dy: Array, x: Array, gamma: Array, mean: Array, var: Array, xhat: Array
    ) -> Gradients:
        return gradients(dy=dy, x=x, gamma=gamma, mean=mean, var=var, xhat=xhat)

    def rms_norm(dy: Array, x: Array, gamma: Array, rstd: Array, xhat: Array) -> Gradients:
        return gradients(dy=dy, x=x, gamma=gamma, rstd=rstd, xhat=xhat)

    x, gamma, beta = data((3, 6), (6,), (6,))
    inputs = {"x": x + 1, "gamma": gamma}
    if name == "RMSNorm":
        return tn.gradcheck_steps(steps, rms_norm, inputs, **options)
    return tn.gradcheck_steps(steps, layer_norm, inputs | {"beta": beta}, **options)


class TestBlame:
    @pytest.mark.parametrize("name", DERIVATIONS)
    def test_right_derivations(self, name: str, method: str) -> None:
        result = check(name, method=method)
        assert result, result
        assert result.mistakes == ()
        assert {each.method for each in result.gradients.values()} == {method}

    @pytest.mark.parametrize("mistake", MISTAKES)
    def test_one_mistake(self, mistake: str) -> None:
        name, gradient, line = MISTAKES[mistake]
        result = check(name, {gradient: line})
        assert result.mistakes == (gradient,), result
        assert f"FAIL: the mistake is in the line that computes {gradient}" in repr(result)

    def test_tolerance(self) -> None:
        line = {"dbeta": lambda v: v["dy"].sum(axis=0) * (1 + 1e-5)}
        assert check("layer norm", line).mistakes == ("dbeta",)
        assert check("layer norm", line, tol=1e-4)

    def test_two_mistakes_on_different_paths(self) -> None:
        result = check(
            "layer norm", {"dgamma": lambda v: 0 * v["gamma"], "dvar": lambda v: 0 * v["var"]}
        )
        assert result.mistakes == ("dgamma", "dvar")
        assert "computes dgamma and in the line that computes dvar" in repr(result)

    def test_the_variance_path_of_a_centred_mean_is_zero(self) -> None:
        """(D12): without it, dmean is right."""
        assert check("layer norm", {"dmean": lambda v: -v["rstd"] * sum_of(v["dxhat"])})

    def test_order_is_that_of_backward(self) -> None:
        result = check("layer norm")
        assert list(result.gradients) == ["dgamma", "dbeta", "dxhat", "dvar", "dmean", "dx"]
        assert result.depends_on["dx"] == ("dmean", "dvar", "dxhat")
        assert result.depends_on["dxhat"] == ("dy",)

    def test_the_output_may_be_used_by_backward(self) -> None:
        assert tn.gradcheck_steps(
            {"a": lambda x: 2 * x, "y": lambda a: np.tanh(a)},
            lambda dy, y: {"da": dy * (1 - y**2), "dx": 2 * dy * (1 - y**2)},
            {"x": data((4,))[0]},
        )

    def test_steps_and_backward_may_modify_arrays(self) -> None:
        def centred(x: Array, mean: Array) -> Array:
            x -= mean
            return x

        def backward(dy: Array, x: Array) -> Gradients:
            x[:] = 0
            dmean = -dy.sum()
            return {"dcentred": dy, "dmean": dmean, "dx": dy + dmean / dy.size}

        (x,) = data((4,))
        before = x.copy()
        steps: Lines = {
            "mean": lambda x: x.mean(),
            "centred": centred,
            "y": lambda x, centred: centred + 0 * x,
        }
        assert tn.gradcheck_steps(steps, backward, {"x": x})
        assert np.array_equal(x, before)

    def test_a_parameter_with_a_default_is_no_value(self) -> None:
        def scaled(x: Array, factor: float = 3.0) -> Array:
            return x * factor

        def backward(dy: Array, factor: float = 3.0) -> Gradients:
            return {"dx": dy * factor}

        assert tn.gradcheck_steps({"y": scaled}, backward, {"x": data((4,))[0]})


class TestReport:
    def test_says_why(self) -> None:
        name, gradient, line = MISTAKES["dvar without 1/2"]
        report = str(check(name, {gradient: line}))
        expected = [
            "FAIL: the mistake is in the line that computes dvar", "  dxhat: PASS, error",
            "  dvar: FAIL, error",
            "    the mistake is in the line that computes dvar: it depends on right gradients",
            " only (dxhat)\n", "  dx: FAIL, error", "    dx may be wrong because of dvar (FAIL)",
        ]  # fmt: skip
        positions = [report.index(each) for each in expected]
        assert positions == sorted(positions)

    def test_right(self) -> None:
        assert repr(check("RMSNorm")) == "<StepsCheck, PASS: dgamma, dxhat, drstd, dx>"

    def test_an_inconclusive_gradient_blames_no_line_after_it(self) -> None:
        """At a kink nothing is known of da, and dx may be wrong because of it."""
        result = tn.gradcheck_steps(
            {"a": lambda x: x - x.mean(), "y": lambda a: np.abs(a)},
            lambda dy, a: {"da": dy * np.sign(a), "dx": 5 * dy},
            {"x": np.array([-1.0, 0.0, 1.0])},
        )
        verdicts = {name: str(each.verdict) for name, each in result.gradients.items()}
        assert verdicts == {"da": "INCONCLUSIVE", "dx": "FAIL"}
        assert result.mistakes == ()
        assert repr(result) == "<StepsCheck, FAIL: dx>"
        assert "dx may be wrong because of da (INCONCLUSIVE)" in str(result)
        assert "a kink" in str(result)

    def test_raises_if_required(self) -> None:
        name, gradient, line = MISTAKES["dxhat without gamma"]
        with pytest.raises(AssertionError, match="the mistake is in the line that computes dxhat"):
            check(name, {gradient: line}, raise_exception=True)
        assert check(name, raise_exception=True)


DOUBLED: Lines = {"a": lambda x: 2 * x, "y": lambda a: a + 1}


def doubled(dy: Array) -> Gradients:
    return {"da": dy, "dx": 2 * dy}


class TestArguments:
    @pytest.mark.parametrize(
        ("steps", "message"),
        [
            (
                {"a": lambda x, mu: x - mu, "y": lambda a: a},
                r"step 'a' has the parameter mu: expected names of inputs and earlier steps \(x\)",
            ),
            ({"a": lambda x, y: x + y, "y": lambda a: a},
                r"step 'a' has the parameter y: expected names of inputs and earlier steps \(x\)"),
            ({"a": lambda *x: x[0], "y": lambda a: a}, r"has the parameter \*x"),
            ({"a": lambda x, /: x, "y": lambda a: a}, "has the parameter x"),
            ({"x": lambda x: x, "y": lambda x: x}, "x is an input and a step: rename the step"),
            ({"a": lambda x: x, "b": lambda x: x, "y": lambda a: a},
                "no step uses b: remove it, or use it in a step"),
        ],
    )  # fmt: skip
    def test_names(self, steps: Lines, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            tn.gradcheck_steps(steps, doubled, {"x": np.ones(3)})

    def test_types(self) -> None:
        x = np.ones(3)
        with pytest.raises(TypeError, match=r"steps must be a dict .* got \["):
            tn.gradcheck_steps([lambda x: x], doubled, {"x": x})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="inputs must be a dict with at least one name"):
            tn.gradcheck_steps(DOUBLED, doubled, {})
        with pytest.raises(TypeError, match="step 'y' must be a Python function, got 2"):
            tn.gradcheck_steps({"y": 2}, doubled, {"x": x})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match=r"nothing to check: .*; got a of shape \(0,\)"):
            tn.gradcheck_steps(DOUBLED, doubled, {"x": np.zeros(0)})
        with pytest.raises(TypeError, match=r"^x is of type int64"):
            tn.gradcheck_steps(DOUBLED, doubled, {"x": np.arange(3)})

    @pytest.mark.parametrize(
        ("gradients", "message"),
        [
            ({"dx": np.ones(3)}, "must return a dict of da, dx; got a dict without da"),
            ({"da": np.ones(3), "dx": np.ones(3), "db": np.ones(3)},
                "must return a dict of da, dx; got a dict with the unknown db"),
            ((np.ones(3), np.ones(3)), "must return a dict of da, dx; got a tuple"),
            ({"da": np.ones((1, 3)), "dx": np.ones(3)},
                r"the gradient of a has shape \(1, 3\) but a has shape \(3,\)"),
        ],
    )  # fmt: skip
    def test_gradients(self, gradients: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            tn.gradcheck_steps(DOUBLED, lambda dy: gradients, {"x": np.ones(3)})  # noqa: ARG005

    def test_backward_names_values(self) -> None:
        with pytest.raises(ValueError, match="backward has the parameter cache"):
            tn.gradcheck_steps(DOUBLED, lambda dy, cache: cache, {"x": np.ones(3)})  # noqa: ARG005
