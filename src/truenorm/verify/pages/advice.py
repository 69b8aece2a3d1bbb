"""Why a finding matters to who uses the kernel, and what its author may try."""

from typing import NamedTuple

from truenorm.verify.grading.report import Finding

__all__ = ["Advice", "advice"]


class Advice(NamedTuple):
    """Two sentences for the author of a kernel."""

    matters: str
    to_try: str


CAUSE_IS_NAMED = "look at that place first: it explains every failing case it was tried on"
BY_HAND = "run the reproducer, and compare each step on its way with float64"

ADVICE = {
    "raised": Advice(
        "whoever meets this input gets no result",
        "run the reproducer: it makes the same call alone",
    ),
    "shape": Advice(
        "what comes after reads other elements than it should, or fails",
        "return y and dx of the shape of x, dgamma and dbeta of that of gamma",
    ),
    "type": Advice(
        "memory doubles, or digits are lost, where nobody asked for it",
        "cast results to the type of x, gradients of parameters to theirs",
    ),
    "ordinary": Advice("this is what a model feeds it every day", BY_HAND),
    "finite": Advice(
        "one such element makes a loss NaN, and a zero stops learning without a word",
        "subtract the mean before squaring, and square in a type that holds the result",
    ),
    "growth": Advice(
        "digits are lost where terms cancel or are many: rows with an offset, long columns",
        "subtract the mean before squaring (two passes, or Welford), and sum in a wider type",
    ),
    "rounding": Advice(
        "bits differ from those of every correctly rounded implementation",
        "compute in a wider type and round once; or ask for less with --require",
    ),
    "recipe": Advice(
        "weights were trained with other roundings: two programs will not agree to the bit",
        "round where the recipe rounds, or say with --recipe which one is meant",
    ),
    "special": Advice(
        "a NaN that vanishes hides a broken batch, one that spreads spoils the others",
        "let NaN and infinity go through the arithmetic: max, where and clamp drop them",
    ),
    "subnormal": Advice(
        "small gradients become zero, and what they would have taught is lost",
        "compile without flushing to zero (-ftz=false, no fast math)",
    ),
    "repeat": Advice(
        "no run can be repeated, and no bug be found by running it again",
        "add up in a fixed order: no atomics, no buffer that is not cleared",
    ),
    "sums": Advice(
        "two runs of one training step give other weights, and drift apart from there",
        "add up partial sums in a fixed order, in stages if need be: no atomics",
    ),
    "position": Advice(
        "the same input has another answer at another place: no result can be looked up again",
        "give each row the same order of sums, in a partial block at the end as well",
    ),
    "batch": Advice(
        "the answer to a request depends on who else asks: training and inference differ",
        "choose blocks and orders by D alone, never by the number of rows",
    ),
    "padding": Advice(
        "how much a batch is filled up changes its answers",
        "let no row read what another holds: no maximum, flag or branch of a whole block",
    ),
    "idle": Advice(
        "the gradient of a batch depends on how much padding is in it",
        "add up rows exactly, or one after the other: blocks cut by their number move",
    ),
    "layout": Advice(
        "autograd hands over transposed and expanded gradients, which are misread or refused",
        "read by all strides, or copy what is not contiguous first",
    ),
    "large": Advice(
        "long sequences are wrong from some row on",
        "compute offsets in 64 bits, and let the grid cover all rows",
    ),
    "inputs": Advice(
        "who passed the array goes on with other numbers than before",
        "write to a new array, or copy what is changed",
    ),
    "overwritten": Advice(
        "a result that was kept changes behind its owner's back",
        "return a new array for each call, not a shared buffer",
    ),
    "stale": Advice(
        "with two layers, or with recomputation, gradients are those of another call",
        "keep what backward needs in what forward returns, not in the module",
    ),
    "spent": Advice(
        "a graph that is kept gives other gradients the second time",
        "leave what was saved as it is: backward may only read it",
    ),
}
"""By guard."""


def advice(finding: Finding) -> Advice:
    """Return why a finding matters and what to try; where a cause is named, that comes first."""
    found = ADVICE[finding.guard]
    return found._replace(to_try=CAUSE_IS_NAMED) if finding.cause else found
