"""The written backward of every grouped norm is the derived one."""

import flint
import numpy as np
import pytest

from full.verify.grouped.test_exact_answers import GATED, GROUPED, random_case
from truenorm.verify.formulas.arithmetic import Arbs, evaluate
from truenorm.verify.formulas.graph import Node, derive
from truenorm.verify.norms.grouped.formulas import given_of, graph_of, key_of
from truenorm.verify.norms.norm import require_norm

BITS = 400
MORE = (
    ("rms_norm,modulate=sample,gate=sigmoid-first", "as-3x20"),
    ("rms_norm,variance=1/2,gate=silu-first", "24"),
)


def derived(graph: dict[str, Node]) -> dict[str, Node]:
    names = [name for name in ("x", "z", "gamma", "beta", "scale", "shift") if name in graph]
    found = derive({graph["y"]: graph["dy"]}, [graph[name] for name in names])
    gradients = {f"d{name}": node for name, node in zip(names, found, strict=True)}
    if "dsum" in graph:
        gradients["dx"] = gradients["dx"] + graph["dsum"]
    return gradients


@pytest.mark.parametrize(("spec", "layout"), [*GROUPED, *GATED, *MORE])
def test_written_is_derived(spec: str, layout: str) -> None:
    case = random_case(spec, layout, "float32", 2)
    norm = require_norm(case.operation, "a test")
    graph, numbers = graph_of(norm, key_of(norm, case)), given_of(norm, case, norm.geometry(case))
    gradients = derived(graph)
    assert {*gradients} == {each.name for each in norm.outputs if each.backward} - {"dresidual"}
    with flint.ctx.workprec(BITS):
        for name, node in gradients.items():
            values = evaluate([graph[name], node], Arbs, numbers)
            written, other = np.broadcast_arrays(values[graph[name]], values[node])
            assert written.shape == values[graph[name]].shape
            for one, another in zip(written.flat, other.flat, strict=True):
                assert one.overlaps(another)
                assert abs(one - another) < flint.arb(2) ** -200
