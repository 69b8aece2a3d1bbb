"""Sentences that the terminal page, the HTML page and tests share."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from truenorm.tools.text import counted, duration, number, short_number
from truenorm.verify.grading.report import (
    BATCH_INVARIANT,
    GRADES,
    BeyondDomain,
    Finding,
    Grade,
    Known,
    Recipe,
    Report,
    Unsupported,
)

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
    "sglang": "sgl-project/sglang",
    "tensorflow": "tensorflow/tensorflow",
    "TensorRT-LLM": "NVIDIA/TensorRT-LLM",
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
    total = _total(report)
    if report.not_run:
        notes.append(f"{report.not_run} of {total} cases did not run: the grades omit them")
    notes += [
        f"unsupported: {unsupported_text(each)}: {each.message}" for each in report.unsupported
    ]
    notes += too_slow_lines(report)
    if not report.domain.is_all:
        notes.append(f"the grades are for {report.domain}: {report.cases} of {total} cases")
    return notes


def unsupported_text(one: Unsupported) -> str:
    """Return which type, or which eps, is refused."""
    numbers = ", ".join(map(short_number, one.eps))
    return f"eps = {numbers} in {one.dtype}" if one.eps else one.dtype


def _unsupported_reason(report: Report) -> str:
    """Return what is refused, for the last sentence."""
    refused = " and ".join(map(unsupported_text, report.unsupported))
    return f"; unsupported: {refused}" if refused else ""


def _total(report: Report) -> int:
    slow = sum(each.cases for each in report.too_slow)
    return report.cases + report.not_run + report.left_out + slow


def too_slow_lines(report: Report) -> list[str]:
    """Return what was not judged within the time limit, by type."""
    lines = []
    for dtype in dict.fromkeys(each.dtype for each in report.too_slow):
        of_type = [each for each in report.too_slow if each.dtype == dtype]
        families = {
            counted(sum(getattr(each, name) for each in of_type), word): [
                each.family for each in of_type if getattr(each, name)
            ]
            for name, word in (("cases", "case"), ("calls", "call of another case"))
        }
        texts = [
            f"{count.replace('call of another cases', 'calls of other cases')} "
            f"({', '.join(names)})"
            for count, names in families.items()
            if names
        ]
        seconds = duration(sum(each.seconds for each in of_type))
        what = " and ".join(texts)
        lines.append(f"not judged in {dtype}: too slow: {what}; about {seconds}, see --time")
    return lines


def _rest(report: Report) -> str:
    """Return what was not judged, for the last sentence."""
    return f"{_unsupported_reason(report)}{_too_slow_reason(report)}"


def _too_slow_reason(report: Report) -> str:
    if not report.too_slow:
        return ""
    cases = sum(each.cases for each in report.too_slow)
    calls = sum(each.calls for each in report.too_slow)
    parts = [counted(cases, "case"), counted(calls, "call")]
    return f"; too slow to judge: {' and '.join(parts)} (--time SECONDS gives longer)"


def beyond_heading(report: Report) -> str:
    """Return how many cases lie beyond the domain; empty if there are none."""
    if not report.left_out:
        return ""
    cases = f"beyond {report.domain}: {counted(report.left_out, 'case')}"
    if report.beyond:
        return f"{cases}, required by --strict"
    if all(each.reaches(report.require) for each in report.grades):
        return f"{cases}, all at least {report.require}"
    return f"{cases}, no output worse than within"


def beyond_text(one: BeyondDomain) -> str:
    """Return where something fails beyond the domain."""
    if not one.limit:
        return f"fails the check '{one.outcome}': {one.values}"
    values = f" ({one.values})" if one.values else ""
    return f"{one.outcome} from {one.limit} = {number(one.least)} on{values}"


def likely_cause(finding: Finding) -> str:
    """Return the likely cause, or how many hypotheses were compared without a match.

    The cause of a finding that follows from another one is that finding.
    """
    if finding.follows:
        number_ = f"finding {finding.follows}"
        if finding.cause:
            return f"as {number_}"
        return f"unknown; may follow from {number_}"
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
    return {each.dtype: (_recipe_name(each), str(each)) for each in report.recipes}


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


def _notes_reason(report: Report) -> str:
    """Return the notes on recipes, each with its types, for the last sentence."""
    types: dict[str, list[str]] = {}
    for dtype in recipe_lines(report):
        for note in recipe_notes(report, dtype):
            types.setdefault(note, []).append(dtype)
    return "".join(f"; {' and '.join(dtypes)}: {note}" for note, dtypes in types.items())


def _recipe_name(recipe: Recipe) -> str:
    if not recipe.name:
        return "none matches"
    others = recipe.same[recipe.name]
    return recipe.full_name + (f" (as {' and '.join(others)} here)" if others else "")


SCALE_RULES = {
    "amax/qmax": "amax/qmax, rounded once",
    "amax*[1/qmax]": "amax times the rounded 1/qmax",
    "": "amax/qmax within the tolerance; the bits do not show how it is rounded",
}


def quantization_lines(report: Report) -> list[tuple[str, str, str]]:
    """Return lines about codes and scales: what a line is about, the type, and the text."""
    lines = []
    for each in report.quantization:
        share = math.floor(1e4 * each.exact_codes) / 100
        codes = f"{share:.2f} % are exact in ordinary rows"
        noise = f"the rms error is {each.noise:.3f} times that of exact codes and scales"
        lines.append(("codes", each.dtype, f"{codes}; {noise}"))
        if report.operation.type_of("scale", "") == "float32":
            zeros = f"; {each.zeros} for zeros" if each.zeros else ""
            floor = each.floor or f"several rules ({', '.join(each.floors)})"
            rules = f"{SCALE_RULES[each.scale]}; least scale: {floor}{zeros}"
            lines.append(("scale", each.dtype, rules))
    return lines


def verdict_line(report: Report) -> str:
    """Return the number of findings and of causes, for the first line of a page."""
    new = report.failures
    words = "finding" if report.baseline is None else "new finding"
    if not new:
        if not report.passed:
            return f"every output must be {report.require}"
        warnings = len(report.warnings)
        return f"no {words}" + (f", {counted(warnings, 'warning')}" if warnings else "")
    text = counted(len(new), words)
    followers = [each for each in new if each.follows]
    if not followers:
        return text
    certain = all(each.cause for each in followers)
    verb = "may follow" if not certain else "follows" if len(followers) == 1 else "follow"
    return f"{text} ({len(followers)} {verb} from others)"


def conclusion(report: Report) -> str:
    """Return the reason of pass or fail in one sentence."""
    if report.passed:
        notes = _notes_reason(report)
        return f"{_pass_reason(report)}{_beyond_reason(report)}{_rest(report)}{notes}."
    parts = []
    if new := report.failures:
        parts.append(counted(len(new), "finding" if report.baseline is None else "new finding"))
    below: dict[str, list[Grade]] = {}
    for grade in report.grades:
        if not report.accepts(grade):
            below.setdefault(grade.dtype, []).append(grade)
    if below:
        places = (
            f"{' '.join(each.output for each in grades)} in {dtype}{_units(report, grades)}"
            for dtype, grades in below.items()
        )
        parts.append(f"below {report.require}: {', '.join(places)}")
    return "; ".join(parts) + f"{_rest(report)}."


def _units(report: Report, grades: Sequence[Grade]) -> str:
    """Return the largest error of the grades, in parentheses, where natural units decide."""
    largest = max(each.max_natural for each in grades)
    if report.require not in ("stable", "conditional") or not math.isfinite(largest):
        return ""
    return f" ({'up to ' * (len(grades) > 1)}{number(largest)} units)"


def batch_line(report: Report) -> str:
    """Return which rows depend on the batch, and whether that fails; empty if none do."""
    of_batch = [each for each in report.findings if each.verdict == BATCH_INVARIANT]
    if not of_batch:
        return ""
    places: dict[str, dict[str, None]] = {}
    for each in of_batch:
        places.setdefault(each.dtype, {})[each.output] = None
    where = ", ".join(f"{' '.join(outputs)} in {dtype}" for dtype, outputs in places.items())
    effect = "required; --batch warn only warns" if report.batch == "require" else "a warning"
    if all(each.known for each in of_batch):
        effect = "known"
    return f"batch dependence: {where} ({effect})"


def _pass_reason(report: Report) -> str:
    where = "" if report.domain.is_all else f" within {report.domain}"
    if report.baseline is not None:
        known = "" if all(each.reaches(report.require) for each in report.grades) else " or known"
        return f"no new finding, and every grade is at least {report.require}{known}{where}"
    recipes = {each.dtype: each.full_name for each in report.recipes if each.name}
    names: dict[str, list[str]] = {}
    for dtype in dict.fromkeys(each.dtype for each in report.grades):
        grades = [each.grade for each in report.grades if each.dtype == dtype]
        lowest = min(grades, key=GRADES.index)
        recipe = f"{lowest} by the recipe {recipes[dtype]}" if dtype in recipes else lowest
        names.setdefault(recipe, []).append(dtype)
    if len(names) == 1:
        return f"{next(iter(names))}{where}"
    parts = [f"{' and '.join(dtypes)} {name}" for name, dtypes in names.items()]
    return f"{', '.join(parts)},{where}" if where else ", ".join(parts)


def _beyond_reason(report: Report) -> str:
    """Return the worst that lies beyond the domain, for the last sentence."""
    if not report.beyond:
        return ""
    order = [*GRADES, *(each.outcome for each in report.beyond)]
    worst = min(report.beyond, key=lambda each: order.index(each.outcome))
    text = beyond_text(replace(worst, values="") if worst.limit else worst)
    return f"; beyond that {text} in {worst.dtype} (--strict requires all rows)"
