"""Recipes of grouped norms: the steps that are rounded to T, the type of x, before y."""

from truenorm.verify.formulas.recipes import by_recipe
from truenorm.verify.norms.grouped.formulas import given_of, graph_of, key_of
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.recipes import shows_recipe
from truenorm.verify.operation import Case, RecipeResult, Results

STEPWISE = ("s", "u", "xhat", "gain", "product", "n", "factor", "modulated", "m")


def rounded_steps(norm: Norm) -> dict[str, tuple[str, ...]]:
    """Return the steps that each recipe rounds."""
    table: dict[str, tuple[str, ...]] = {"late": (), "early": ("xhat",)}
    after = bool(norm.gate) and not norm.gate_first
    if after or norm.modulate:
        table |= {"norm-rounded": ("n",), "early, norm-rounded": ("xhat", "n")}
    if norm.gate_first:
        table |= {"gate-rounded": ("u",), "both-rounded": ("s", "u")}
    elif norm.gates_by_z:
        table |= {"gate-rounded": ("s",), "both-rounded": ("n", "s")}
    if norm.modulate or norm.gain == "zero-centred":
        table["gain-rounded"] = ("gain", "factor")
    return {**table, "stepwise": STEPWISE}


def recipe_names(norm: Norm) -> dict[str, str]:
    """Return the recipes that a subject may claim, with the steps that they round."""
    gate = "x*s(z)" if norm.gate_first else "s(z)"
    texts = {
        "late": "one rounding, at the end",
        "early": "xhat is rounded to the type of x",
        "norm-rounded": "xhat*gain is rounded to the type of x",
        "early, norm-rounded": "xhat and xhat*gain are rounded to the type of x",
        "gate-rounded": f"{gate} is rounded to the type of x",
        "both-rounded": f"{'s(z)' if norm.gate_first else 'xhat*gain'} and {gate} are rounded",
        "gain-rounded": f"{'1 + scale' if norm.modulate else '1 + gamma'} is rounded",
        "stepwise": "every step after the statistics is rounded to the type of x",
    }
    return {name: texts[name] for name in rounded_steps(norm)}


def recipe_results(norm: Norm, case: Case, _: Results) -> dict[str, RecipeResult]:
    """Return y by every recipe, for ordinary rows of a type of 16 bits."""
    narrow = shows_recipe(case.dtype) and shows_recipe(norm.result_type or case.dtype)
    if not narrow or case.family != "normal":
        return {}
    graph = graph_of(norm, key_of(norm, case))
    given = given_of(norm, case, norm.geometry(case))
    y, to = graph["y"], norm.result_type or case.dtype
    results = {}
    for name, steps in rounded_steps(norm).items():
        # A norm without a gate after it, or modulation, has no steps n and m but y.
        nodes = {graph[each] for each in steps if not (each in ("n", "m") and graph[each] is y)}
        nodes = {each for each in nodes if each.op not in ("given", "constant")}
        values, decided = by_recipe(y, nodes, given, case.dtype, to)
        results[name] = RecipeResult(values.reshape(case.shape), decided.reshape(case.shape))
    return results
