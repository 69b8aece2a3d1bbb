"""Sentences that the terminal page, the HTML page and the pytest plugin share."""

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
"""GitHub repositories by the short names in the sources of cases."""

_ISSUE = re.compile(r"(?P<name>[\w.-]+(?:/[\w.-]+)?)#(?P<number>[0-9]+)", re.ASCII)


def link(source: str) -> str:
    """Return the URL of a source such as "pytorch#51102", or an empty string.

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
    # GitHub redirects from an issue to a pull request with the same number.
    return f"https://github.com/{repository}/issues/{issue['number']}" if "/" in repository else ""


class Advice(NamedTuple):
    """Why a finding matters, and what to try."""

    matters: str
    to_try: str


WITH_CAUSE = "start with the likely cause: it explains every failing case it was compared with"
BY_HAND = "run the reproducer, and compare each intermediate result with float64"
ADVICE = {
    "raised": Advice(
        "a caller with this input gets no result",
        "run the reproducer: it makes the same call alone",
    ),
    "shape": Advice(
        "code that uses the result reads wrong elements, or fails",
        "return y and dx in the shape of x, dgamma and dbeta in the shape of gamma",
    ),
    "type": Advice(
        "memory use doubles, or digits are lost, without the caller asking for it",
        "cast results to the type of x, and gradients of parameters to their types",
    ),
    "ordinary": Advice("models produce such input all the time", BY_HAND),
    "finite": Advice(
        "one such element makes the loss NaN; a zero silently stops learning",
        "subtract the mean before squaring, and square in a type with enough range",
    ),
    "growth": Advice(
        "digits are lost where terms cancel or are many: rows with an offset, long columns",
        "subtract the mean before squaring (two passes, or Welford), and sum in a wider type",
    ),
    "rounding": Advice(
        "bits differ from those of every correctly rounded implementation",
        "compute in a wider type and round once; or require less with --require",
    ),
    "recipe": Advice(
        "weights were trained with other roundings: two programs will not agree to the bit",
        "round where the recipe rounds, or declare another one with --recipe",
    ),
    "special": Advice(
        "a NaN that vanishes hides a broken batch; one that spreads spoils other rows",
        "pass NaN and infinity through the arithmetic: max, where and clamp drop them",
    ),
    "subnormal": Advice(
        "small gradients become zero and do not contribute to training",
        "compile without flushing to zero (-ftz=false, no fast math)",
    ),
    "repeat": Advice(
        "runs are not reproducible, and bugs cannot be found by running again",
        "sum in a fixed order: no atomics, no uninitialized buffer",
    ),
    "sums": Advice(
        "two runs of one training step give different weights, and diverge from there",
        "add partial sums in a fixed order, in stages if necessary: no atomics",
    ),
    "position": Advice(
        "the result of an input depends on its position: it cannot be cached",
        "sum every row in the same order, also in a partial block at the end",
    ),
    "batch": Advice(
        "the result of a request depends on other requests: training and inference differ",
        "choose blocks and orders by D alone, never by the number of rows",
    ),
    "padding": Advice(
        "the amount of padding in a batch changes its results",
        "let no row depend on others: no maximum, flag or branch over a whole block",
    ),
    "idle": Advice(
        "the gradient of a batch depends on the amount of padding in it",
        "sum rows exactly, or one after the other: block limits move with their number",
    ),
    "layout": Advice(
        "autograd passes transposed and expanded gradients, which are misread or rejected",
        "use all strides, or copy non-contiguous gradients first",
    ),
    "large": Advice(
        "long sequences are wrong from some row on",
        "compute offsets in 64 bits, and let the grid cover all rows",
    ),
    "inputs": Advice(
        "the caller continues with other numbers than it passed",
        "write to a new array, or copy the input first",
    ),
    "overwritten": Advice(
        "a result that the caller stores changes later",
        "return a new array from each call, not a shared buffer",
    ),
    "stale": Advice(
        "with two layers, or with recomputation, gradients are those of another call",
        "return all that backward needs from forward; do not store it in the module",
    ),
    "spent": Advice(
        "a retained graph gives different gradients the second time",
        "do not modify the saved state in backward",
    ),
}
"""By check."""


def advice(finding: Finding) -> Advice:
    """Return why a finding matters and what to try; a likely cause comes first."""
    by_check = ADVICE[finding.guard]
    return by_check._replace(to_try=WITH_CAUSE) if finding.cause else by_check


MEANINGS = {
    "correct": "the exact answer rounded once, everywhere",
    "faithful": "less than 1 ulp everywhere",
    "stable": "a small multiple of u times the natural scale of the result, for every kappa",
    "conditional": "grows like kappa: a mean that is rounded once, Welford",
    "unstable": "grows like kappa squared, or is NaN, infinite or zero where the answer is finite",
    "wrong": "fails on ordinary input",
}
"""The error that each grade stands for, from best to worst."""
LEGEND = "ulp: a step of the type; natural unit: u times the scale; slope: power of kappa"
"""The legend of the grades, within 80 columns."""


def max_ulp(grade: Grade) -> str:
    """Return the largest error in ulp if the grade depends on it, else a dash.

    A stable result may have any error in ulp where terms cancel.
    """
    return number(grade.max_ulp) if grade.grade in ("correct", "faithful") else "-"


def slope(grade: Grade) -> str:
    """Return the power of kappa with which errors grow, or a dash."""
    return "-" if grade.slope is None else f"{grade.slope:.1f}"


def grade_notes(report: Report) -> list[str]:
    """Return which cases the grades do not cover."""
    notes = []
    total = report.cases + report.not_run
    if report.not_run:
        notes.append(f"{report.not_run} of {total} cases did not run: the grades omit them")
    if not report.domain.is_all:
        outside = f"{report.left_out} of {total + report.left_out} cases are outside"
        notes.append(f"the grades are for {report.domain}; {outside}")
    return notes


def likely_cause(finding: Finding) -> str:
    """Return the likely cause, or how many hypotheses were compared without a match."""
    if finding.cause or not finding.tried:
        return finding.cause
    return f"unknown: none of {finding.tried} hypotheses matches"


def location(finding: Finding | Known) -> str:
    """Return the output, the type and the check of a finding."""
    check = finding.verdict if isinstance(finding, Finding) else finding.check
    return ", ".join(each for each in (finding.output, finding.dtype, check) if each)


def baseline_counts(report: Report) -> str:
    """Return the numbers of known, new and vanished findings, if there is a baseline."""
    if report.baseline is None:
        return ""
    known, new, gone = report.baseline.known, report.baseline.new, len(report.baseline.vanished)
    return f"{known} known (baseline), {new} new, {gone} vanished"


def baseline_changes(report: Report) -> list[str]:
    """Return the entries of a baseline that have vanished or improved."""
    if report.baseline is None:
        return []
    entries = report.baseline.entries
    return [
        # If an entry has vanished as a whole, its families say no more.
        *(
            f"vanished: {describe_entry(each, families=each not in entries)}"
            for each in report.baseline.vanished
        ),
        *(
            f"better than {each.grade}: {describe_entry(each, families=False)}"
            for each in report.baseline.better
        ),
    ]


def describe_entry(entry: Known, *, families: bool = True) -> str:
    """Return an entry of a baseline in words."""
    words = location(entry)
    if families and entry.families:
        words += f", in {', '.join(entry.families)}"
    return f"{words} ({entry.reason})" if entry.reason else words


def recipe_lines(report: Report) -> dict[str, tuple[str, str]]:
    """Return, by type, the name of the recipe and the shares of elements with its bits."""
    if not report.operation.recipe_names:
        return {}
    lines = {each.dtype: (_recipe_name(each), str(each)) for each in report.recipes}
    unknown = ("not identified", "arithmetic in this type hides intermediate roundings")
    return {each.dtype: lines.get(each.dtype, unknown) for each in report.grades}


def recipe_notes(report: Report, dtype: str) -> list[str]:
    """Return what explains bits of no recipe, and the roundings of backward, in one type."""
    notes = []
    for each in (*report.recipes, *report.backward_recipes):
        if each.dtype == dtype and (each.explanation or each.tried):
            unknown = (
                f"none of {each.tried} roundings and hypotheses has the bits of {each.output}"
            )
            notes.append(each.explanation or unknown)
    return notes


def _recipe_name(recipe: Recipe) -> str:
    name, *others = recipe.names or ("none matches",)
    return f"{name} (as {' and '.join(others)} here)" if others else name


def conclusion(report: Report) -> str:
    """Return the reason of pass or fail in one sentence."""
    if report.passed:
        where = "" if report.domain.is_all else f" for {report.domain}"
        if report.baseline is None:
            return f"No finding, and every grade is at least {report.require}{where}."
        known = "" if all(each.reaches(report.require) for each in report.grades) else " or known"
        return f"No new finding, and every grade is at least {report.require}{known}{where}."
    parts = []
    if new := [each for each in report.findings if not each.known]:
        parts.append(counted(len(new), "finding" if report.baseline is None else "new finding"))
    below: dict[str, list[str]] = {}
    for grade in report.grades:
        if not report.accepts(grade):
            below.setdefault(grade.dtype, []).append(grade.output)
    if below:
        places = ", ".join(f"{' '.join(outputs)} in {dtype}" for dtype, outputs in below.items())
        parts.append(f"below {report.require}: {places}")
    return "; ".join(parts) + "."
