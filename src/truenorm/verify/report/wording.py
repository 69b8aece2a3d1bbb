"""Where a failure was reported: from "pytorch#51102" to the page of that issue."""

import re
from typing import NamedTuple

from truenorm.tools.text import counted, number
from truenorm.verify.grading.report import Finding, Grade, Known, Recipe, Report

REPOSITORIES = {
    "aiter": "ROCm/aiter",
    "apex": "NVIDIA/apex",
    "burn": "tracel-ai/burn",
    "DeepSpeed": "deepspeedai/DeepSpeed",
    "equinox": "patrick-kidger/equinox",
    "executorch": "pytorch/executorch",
    "Fast-LLM": "ServiceNow/Fast-LLM",
    "FlagGems": "flagos-ai/FlagGems",
    "flash-attention": "Dao-AILab/flash-attention",
    "flash-linear-attention": "fla-org/flash-linear-attention",
    "flashinfer": "flashinfer-ai/flashinfer",
    "flax": "google/flax",
    "helion": "pytorch/helion",
    "IRON": "amd/IRON",
    "KernelBench": "ScalingIntelligence/KernelBench",
    "Liger-Kernel": "linkedin/Liger-Kernel",
    "LightLLM": "ModelTC/LightLLM",
    "llama.cpp": "ggml-org/llama.cpp",
    "Megatron-LM": "NVIDIA/Megatron-LM",
    "mlx": "ml-explore/mlx",
    "nano-vllm": "GeeeekExplorer/nano-vllm",
    "numpy": "numpy/numpy",
    "onnx": "onnx/onnx",
    "onnxruntime": "microsoft/onnxruntime",
    "pytorch": "pytorch/pytorch",
    "quack": "Dao-AILab/quack",
    "tensorflow": "tensorflow/tensorflow",
    "tilelang": "tile-ai/tilelang",
    "trueno": "paiml/trueno",
    "tt-metal": "tenstorrent/tt-metal",
    "tt-mlir": "tenstorrent/tt-mlir",
    "tvm": "apache/tvm",
    "unsloth": "unslothai/unsloth",
    "vllm": "vllm-project/vllm",
    "xla": "openxla/xla",
}
"""By the short names that cases use."""

_ISSUE = re.compile(r"(?P<name>[\w.-]+(?:/[\w.-]+)?)#(?P<number>[0-9]+)", re.ASCII)


def link(source: str) -> str:
    """Return the address of a source, or an empty string where none is known.

    Examples
    --------
    >>> link("pytorch#51102")
    'https://github.com/pytorch/pytorch/issues/51102'
    >>> link("someone/else#7")
    'https://github.com/someone/else/issues/7'
    >>> link("a talk")
    ''
    """
    if source.startswith("https://"):
        return source
    issue = _ISSUE.fullmatch(source)
    if issue is None:
        return ""
    repository = REPOSITORIES.get(issue["name"], issue["name"])
    # GitHub leads from an issue's address to a pull request of that number, so one will do.
    return f"https://github.com/{repository}/issues/{issue['number']}" if "/" in repository else ""


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


MEANINGS = {
    "correct": "the exact answer rounded once, everywhere",
    "faithful": "less than 1 ulp everywhere",
    "stable": "a small multiple of u times the natural scale of the result, whatever kappa is",
    "conditional": "grows like kappa: a mean that is rounded once, Welford",
    "unstable": "grows like kappa squared, or is NaN, infinite or zero where the answer is finite",
    "wrong": "fails on ordinary input",
}
"""What each grade says about the error, from the best to the worst."""


LEGEND = "ulp: a step of the type; natural unit: u times the scale; slope: power of kappa"
"""What the numbers beside the grades are, in 80 columns."""
DECIDED_BY_ULP = ("correct", "faithful")


def max_ulp(grade: Grade) -> str:
    """Return the largest error in ulp where the grade rests on it, else a dash.

    A stable result may be off by any number of them where terms cancel, and nothing is wrong.
    """
    return number(grade.max_ulp) if grade.grade in DECIDED_BY_ULP else "-"


def slope(grade: Grade) -> str:
    """Return the power of kappa with which errors grow; a dash where nothing does."""
    return "-" if grade.slope is None else f"{grade.slope:.1f}"


def about(report: Report) -> list[str]:
    """Return what the grades rest on, where that is not all cases."""
    said = []
    every = report.cases + report.not_run
    if report.not_run:
        said.append(f"{report.not_run} of {every} cases did not run: the grades are of the others")
    if not report.domain.is_all:
        left = f"{report.left_out} of {every + report.left_out} cases are beyond and left out"
        said.append(f"the grades are about {report.domain}; {left}")
    return said


def cause(finding: Finding) -> str:
    """Return what is done wrong, if that is known; nothing where it is not asked for."""
    if finding.cause or not finding.tried:
        return finding.cause
    return f"none of {finding.tried} hypotheses fits"


def below(report: Report) -> list[Grade]:
    """Return the grades that are lower than required, and than a baseline has them."""
    return [grade for grade in report.grades if not report.accepts(grade)]


def counts(report: Report) -> str:
    """Return what a baseline says of a report, in numbers; nothing if there is none."""
    if report.baseline is None:
        return ""
    known, new, gone = report.baseline.known, report.baseline.new, len(report.baseline.vanished)
    return f"{known} known (baseline), {new} new, {gone} vanished"


def vanished_lines(report: Report) -> list[str]:
    """Return what a baseline has and this run has not, or has with a better grade."""
    if report.baseline is None:
        return []
    better = [
        f"better than {each.grade}: {entry_in_words(each, families=False)}"
        for each in report.baseline.better
    ]
    # Where nothing is left of an entry, its families say no more.
    whole = report.baseline.entries
    return [
        f"vanished: {entry_in_words(each, families=each not in whole)}"
        for each in report.baseline.vanished
    ] + better


def entry_in_words(known: Known, *, families: bool = True) -> str:
    """Return a finding of a baseline in words."""
    said = place(known)
    if families and known.families:
        said += f", in {', '.join(known.families)}"
    return f"{said} ({known.reason})" if known.reason else said


def place(found: Finding | Known) -> str:
    """Return what a finding is about: the result, the type, the check."""
    what = found.verdict if isinstance(found, Finding) else found.check
    return ", ".join(each for each in (found.output, found.dtype, what) if each)


def recipe_lines(report: Report) -> dict[str, tuple[str, str]]:
    """Return by type the name of the recipe, and in how many elements each has its bits."""
    if not report.operation.recipe_names:
        return {}
    lines = {each.dtype: (_named(each), str(each)) for each in report.recipes}
    hidden = ("not told", "arithmetic in this type hides where a result is rounded on the way")
    return {each.dtype: lines.get(each.dtype, hidden) for each in report.grades}


def _named(recipe: Recipe) -> str:
    """Return the name of a recipe, and of those that cannot be told from it."""
    name, *others = recipe.names or ("none fits",)
    return f"{name} (as {' and '.join(others)} here)" if others else name


def conclusion(report: Report) -> str:
    """Return what the verdict rests on, in one sentence."""
    if report.passed:
        where = "" if report.domain.is_all else f" for {report.domain}"
        if report.baseline is None:
            return f"No finding, and every grade is at least {report.require}{where}."
        known = "" if all(each.reaches(report.require) for each in report.grades) else " or known"
        return f"No new finding, and every grade is at least {report.require}{known}{where}."
    new = [each for each in report.findings if not each.known]
    said = [counted(len(new), "finding" if report.baseline is None else "new finding")]
    said = said if new else []
    low: dict[str, list[str]] = {}
    for grade in below(report):
        low.setdefault(grade.dtype, []).append(grade.output)
    if low:
        which = ", ".join(f"{' '.join(outputs)} in {dtype}" for dtype, outputs in low.items())
        said.append(f"below {report.require}: {which}")
    return "; ".join(said) + "."
