"""The results of docs/judge/museum.md: the judge's named cases, and the packages that fail them.

The failures are those that ``python -m benchmarks.world`` wrote.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.common import coloured, markdown_table
from benchmarks.world.page import FILES, Row, base_of
from truenorm.tools.text import number
from truenorm.verify import Case, case
from truenorm.verify.inputs.named import Entry, entries, not_cases
from truenorm.verify.operation import Operation
from truenorm.verify.operations import LAYER_NORM, OPERATIONS, RMS_NORM
from truenorm.verify.oracle import expected
from truenorm.verify.report.wording import link

__all__ = ["CASES", "FILES", "page"]

SHOWN = "float32"  # the type of an exhibit, if the entry has it
CASES = tuple(
    each.folder / "cases.toml" for each in (LAYER_NORM, RMS_NORM) if each.folder is not None
)

Rows = Sequence[Row]

MATRIX = """\
The type is float32, or the first type of an exhibit that has no float32.
A norm fails if an error is larger than that of a stable algorithm, or if a result is missing.
*Of* is the number of norms that were judged there; the [scoreboard](scoreboard.md) has their
versions.
Measured on {date}: quick level, {cpu}."""

REPORTED = """\
## Reported failures

κ is the [condition number](../reference/grades.md#read-the-grades) of a row,
rms(x)/√(var + eps)."""

RMSNORM = """\
## RMSNorm

No mean is subtracted, so κ is 1 for every row.
Three things are hard for an RMSNorm: the range of the squares, sums in few bits, and dx where x is
proportional to gamma·dy.
To run one case alone:

    tv.check(subject, tv.case("{example}", operation=tv.RMS_NORM))

These rows of layer norm, without beta, are cases of RMSNorm as well: {taken}."""


QUANTIZED = """\
## Quantized norms

The scoreboard has no such norms.
Each case shows a [kernel](quantized.md) with the fault; a test of truenorm judges it."""


class PlantedFailure(NamedTuple):
    """A reported failure of a norm that no package here has, and the case that shows it.

    `bug` names the kernel with this fault in ``tests/shared/verify/KIND/planted.py``.
    """

    title: str
    sources: tuple[str, ...]
    bug: str
    operation: str
    case: str = "float32-normal-4x67"


QUANTIZED_FAILURES = (
    PlantedFailure("y is not rounded to bfloat16 before the cast to 8 bits: 3 % of the codes "
                   "change, and the score of a model falls from 93.0 to 83.5 %",
                   ("TensorRT-LLM#14464", "vllm#37838"), "bfloat16 skipped before the cast",
                   "rms_norm,quant=e4m3fn", "bfloat16-normal-64x33"),
    PlantedFailure("y over the scale is rounded to bfloat16 once more",
                   ("flashinfer#4160", "flashinfer#4167"), "rounded to bfloat16 after scaling",
                   "rms_norm,quant=e4m3fn", "bfloat16-normal-64x33"),
    PlantedFailure("codes beyond 448 are NaN, not saturated", ("ROCm/TransformerEngine#249",),
                   "no clamp", "rms_norm,quant=e4m3fn", "bfloat16-row-counts-5x8"),
    PlantedFailure("int8 codes are truncated", ("aiter#4637",), "int8 truncated",
                   "rms_norm,quant=int8,scale=per-token", "bfloat16-row-counts-5x8"),
    PlantedFailure("0/0 in a row of zeros", ("pytorch/ao#4714",), "0/0 in a row of zeros",
                   "rms_norm,quant=e4m3fn,scale=per-token", "bfloat16-zero-rows-8x512"),
    PlantedFailure("NaN becomes the largest code", ("vllm#41427",), "NaN clamped",
                   "rms_norm,quant=e4m3fn,scale=per-token", "bfloat16-one-nan-4x512"),
    PlantedFailure("all rows have one scale", ("sglang#5156",), "one scale for the tensor",
                   "rms_norm,quant=e4m3fn,scale=per-token", "bfloat16-row-counts-5x8"),
    PlantedFailure("the power of two is that of amax, without the largest code",
                   ("vllm#53110",), "power without 448", "rms_norm,quant=mxfp8",
                   "bfloat16-rows-1x128"),
    PlantedFailure("the sum is truncated to bfloat16, so that it shrinks with every layer",
                   ("aiter#5151",), "residual truncated", "add_rms_norm,quant=e4m3fn",
                   "bfloat16-row-counts-5x8"),
)  # fmt: skip


def _planted(failures: Iterable[PlantedFailure]) -> str:
    """Return a table of failures that planted bugs show."""
    rows = [
        [_escape(each.title), _links(each.sources), f"`{each.operation}`", f"`{each.case}`"]
        for each in failures
    ]
    return markdown_table(["failure", "reported", "operation", "case"], rows, numbers=False)


GROUPED = """\
## Grouped, gated and modulated norms

The scoreboard has no such norms either.
Each case shows a [kernel](grouped.md) with the fault; a test of truenorm judges it."""


GROUPED_FAILURES = (
    PlantedFailure("groups are ignored", ("state-spaces/mamba#910",),
                    "groups ignored", "group_norm,groups=2"),
    PlantedFailure("groups are ignored in backward", ("state-spaces/mamba#547",),
                    "groups ignored in backward", "rms_norm,groups=4"),
    PlantedFailure("there are twice as many groups", ("llama.cpp#15507",),
                    "twice the groups", "group_norm,groups=2", "float32-normal-4x8"),
    PlantedFailure("dgamma of channel c has the mean of group c % G", ("tt-metal#56202",),
                    "dgamma of group c % G", "group_norm,groups=2", "float32-normal-4x3"),
    PlantedFailure("dgamma is a sum over part of a channel", ("Liger-Kernel#1375",),
                    "sums over part of a channel", "group_norm,groups=2"),
    PlantedFailure("padding lanes read the next group", ("FlagOpen/FlagGems#4985",),
                    "padding lanes of the next group", "group_norm,groups=2"),
    PlantedFailure("the mean is computed in bfloat16", ("pytorch#77507",),
                    "mean in bfloat16", "group_norm,groups=2", "bfloat16-normal-4x67"),
    PlantedFailure("dgamma is summed in bfloat16", ("pytorch#140913",),
                    "dgamma in bfloat16", "group_norm,groups=2", "bfloat16-many-rows-4096x8"),
    PlantedFailure("the variance overflows in float16", ("mlx#4228",),
                    "variance in float16", "group_norm,groups=2", "float16-large-values-4x67"),
    PlantedFailure("the gate is sigmoid, not silu", ("vllm#35482",),
                    "sigmoid for silu", "rms_norm,gate=silu"),
    PlantedFailure("dz is returned as dx", ("fla-org/flash-linear-attention#155",),
                    "dz returned as dx", "rms_norm,gate=silu"),
    PlantedFailure("eps is added to the sum of squares", ("ml-explore/mlx-lm#1624",),
                    "eps on the sum", "rms_norm,gate=silu"),
    PlantedFailure("all samples get the scale of the first", ("vllm-project/vllm-omni#1531",),
                    "sample 0 for all", "layer_norm,modulate=sample,gamma=false"),
    PlantedFailure("scale and shift are rounded to bfloat16", ("TensorRT-LLM#17987",),
                    "modulation in bfloat16", "rms_norm,modulate=row"),
    PlantedFailure("all heads are normalized as one", ("vllm#16311",),
                    "QK-norm over all heads", "rms_norm,heads=4"),
)  # fmt: skip


def page(report: Mapping[str, Any]) -> str:
    """Return what passes and fails, then the exhibits."""
    judged = [row for row in report["rows"] if row["outcome"] == "judged"]
    layer_norm, rms_norm = (
        [row for row in judged if base_of(row) == each.name] for each in (LAYER_NORM, RMS_NORM)
    )
    reported, quiet = _own_entries(LAYER_NORM)
    of_rms_norm = [each for entries in _own_entries(RMS_NORM) for each in entries]
    taken = ", ".join(f"`{each['name']}`" for each in entries(RMS_NORM) if "as_in" in each)
    missing = [each for operation in OPERATIONS.values() for each in not_cases(operation)]
    parts = [
        "## Exhibits by package",
        "**Layer norm**",
        _matrix(LAYER_NORM, [*reported, *quiet], layer_norm),
        "**RMSNorm**",
        _matrix(RMS_NORM, of_rms_norm, rms_norm),
        MATRIX.format(**report["machine"]),
        REPORTED,
        *(_exhibit(LAYER_NORM, entry, layer_norm) for entry in reported),
        "## Cases without a report",
        *(_exhibit(LAYER_NORM, entry, layer_norm) for entry in quiet),
        RMSNORM.format(example=_shown(of_rms_norm[0]), taken=taken),
        *(_exhibit(RMS_NORM, entry, rms_norm) for entry in of_rms_norm),
        QUANTIZED,
        _planted(QUANTIZED_FAILURES),
        GROUPED,
        _planted(GROUPED_FAILURES),
        "## What no case can show",
        *map(_missing, missing),
    ]
    return "\n\n".join(parts) + "\n"


def _matrix(operation: Operation, exhibits: Iterable[Entry], norms: Rows) -> str:
    """Return a row for each exhibit: how many norms fail there, of how many, and which."""
    rows = []
    for entry in exhibits:
        if not entry["also"]:  # an extension, which no subject claims
            shown = case(_shown(entry), operation=operation)
            outcomes = {row["name"]: _outcome(shown, row) for row in norms}
            failing = [name for name, failed in outcomes.items() if failed]
            passing = [name for name, failed in outcomes.items() if failed == []]
            count = coloured(str(len(failing)), "fail" if failing else "pass")
            title = f"[{_escape(entry['title'])}](#{_anchor(operation, entry)})"
            names = ", ".join(failing) or "-"
            if len(failing) > len(passing) > 0:
                names = f"all but {', '.join(passing)}"
            rows.append([title, count, str(len(failing) + len(passing)), names])
    return markdown_table(["exhibit", "fail", "of", "norms that fail"], rows, numbers=False)


def _outcome(shown: Case, row: Row) -> list[str] | None:
    """Return the outputs that fail a case, or the verdict that it is about; None if not judged.

    That y of a row is accurate does not say that its bits do not depend on the batch.
    """
    if shown.name not in row["named"]:
        return None
    verdict = _verdict_of(shown)
    if verdict:
        word = row["verdicts"][verdict]
        return None if word == "not judged" else [verdict] * (word in ("fail", "warn"))
    return list(row["named"][shown.name])


def _verdict_of(shown: Case) -> str:
    """Return the verdict that a case is about, or an empty string if that is accuracy."""
    if shown.kind == "special":
        return "special values"
    return "batch-invariant" if shown.family == "batch" else ""


def _anchor(operation: Operation, entry: Entry) -> str:
    return f"{operation.name.replace('_', '-')}-{entry['name'].replace('.', '-')}"


def _own_entries(operation: Operation) -> tuple[list[Entry], list[Entry]]:
    """Return the operation's own entries: reported ones, and others."""
    own = [entry for entry in entries(operation) if "as_in" not in entry]
    with_sources = [entry for entry in own if entry["sources"]]
    return with_sources, [entry for entry in own if not entry["sources"]]


def _escape(text: str) -> str:
    """Escape the special characters of Markdown."""
    return re.sub(r"([\\`*_\[\]<>$|])", r"\\\1", text)


def _links(sources: Iterable[str]) -> str:
    """Return the sources, each as a link if its address is known."""
    pairs = ((_escape(source), link(source)) for source in sources)
    return ", ".join(f"[{name}]({address})" if address else name for name, address in pairs)


def _shown(entry: Entry) -> str:
    """Return the name of the case that stands for an entry."""
    kind = SHOWN if SHOWN in entry["dtypes"] else entry["dtypes"][0]
    return f"{kind}-{entry['name']}"


def _exhibit(operation: Operation, entry: Entry, norms: Rows) -> str:
    shown = case(_shown(entry), operation=operation)
    lines = [
        f"({_anchor(operation, entry)})=",
        f"### {_escape(entry['title'])}",
        "",
        *([_escape(entry["failed"]), ""] if entry["failed"] else []),
        *([f"- **Reported:** {_links(entry['sources'])}"] if entry["sources"] else []),
        f"- **Tests:** {_escape(entry['shows'].rstrip('.'))}.",
        f"- **Case:** {_described(shown, entry)}",
        *([] if entry["also"] else [_failing(shown, norms)]),
    ]
    return "\n".join(lines)


def _described(shown: Case, entry: Entry) -> str:
    """Return name, size and condition of a case, its other types, and what it needs."""
    rows, size = shown.x.shape
    eps = re.sub(r"e-0*", "e-", f"{shown.eps:.2g}")
    kappa = number(float(expected(shown).scales.kappa.max(initial=0.0)))
    count = {0: "no rows", 1: "1 row"}.get(rows, f"{rows:,} rows")
    condition = f", κ up to {kappa}" if rows and shown.operation is LAYER_NORM else ""
    text = f"`{shown}`: {count} of {size}, eps = {eps}{condition}"
    others = [kind for kind in entry["dtypes"] if kind != shown.dtype]
    text += f"; also in {', '.join(others)}" if others else ""
    needs = ", ".join(f"`{name}`" for name in entry["also"])
    return text + (f"; needs {needs}" if needs else "")


def _failing(shown: Case, norms: Rows) -> str:
    """Return the norms that fail a case, those with the same outputs together."""
    groups: dict[str, list[str]] = {}
    for row in norms:
        if failed := _outcome(shown, row):
            groups.setdefault(", ".join(failed), []).append(row["name"])
    verdict = _verdict_of(shown)
    if verdict:
        names = ", ".join(groups.get(verdict, ["none"]))
        return f"- **Fail “{verdict}” in at least one type:** {names}"
    texts = [f"{', '.join(names)} ({outputs})" for outputs, names in groups.items()]
    return f"- **Fail in {shown.dtype}:** {'; '.join(texts) or 'none'}"


def _missing(failure: Entry) -> str:
    title, reason = _escape(failure["title"]), _escape(failure["reason"])
    return f"### {title}\n\n{reason}\n\n- **Reported:** {_links(failure['sources'])}"
