"""``python -m benchmarks.holes``: find wrong kernels that the tests of other projects let pass.

It audits benchmarks/imitations.py, which has inputs and tolerances of other projects. The report
goes to results/holes.json, which docs/judge/holes.md shows.
"""

import json
import os
import sys
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

from benchmarks.common import RESULTS, ROOT, coloured, machine, markdown_table, options, publish
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import number
from truenorm.verify.audit.replacing import AuditTask
from truenorm.verify.audit.running import audit_tests

FILES = (RESULTS / "holes.json",)
TESTS, MODULE = "benchmarks/imitations.py", "benchmarks.imitations"


class Listed(NamedTuple):
    """An audit: its tests, the kernel that is replaced, and what is taken from the project."""

    project: str
    what: str
    test: str
    operation: str
    taken: str
    backward: bool = False
    kernel: str = ""  # if it has not the name of its operation
    recipe: str = ""

    @property
    def path(self) -> str:
        """The argument of pytest."""
        return f"{TESTS}::{self.test}"

    @property
    def task(self) -> AuditTask:
        """The replacement."""
        kernel = f"{MODULE}:{self.kernel or self.operation}"
        backward = f"{kernel}_backward" if self.backward else ""
        return AuditTask(kernel, self.operation, backward, recipe=self.recipe)

    @property
    def command(self) -> str:
        """The equivalent command line."""
        backward = f" --backward {self.task.backward}" if self.backward else ""
        tests = f"'{self.path}'" if "[" in self.test else self.path
        return (
            f"truenorm audit {tests} --replace {self.task.replace}{backward} "
            f"--operation {self.operation}" + (f" --recipe '{self.recipe}'" if self.recipe else "")
        )


VLLM = "x and residual randn/(2H), weight N(1, 0.1), 1e-2 for all types"
SMALL_CASES = "cases of the judge up to 8192 elements, bfloat16, `tv.check`"
LISTED = (
    Listed("vLLM", "RMSNorm, H = 5120", "test_vllm_rms_norm[5120]", "rms_norm", VLLM),
    Listed("vLLM", "RMSNorm, H from 8 to 8192", "test_vllm_rms_norm", "rms_norm", VLLM),
    Listed("vLLM", "add + RMSNorm, H = 768", "test_vllm_add_rms_norm[768]", "add_rms_norm", VLLM),
    Listed("vLLM", "add + RMSNorm, H = 5120", "test_vllm_add_rms_norm[5120]", "add_rms_norm",
           VLLM),
    Listed("FlashInfer", "RMSNorm", "test_flashinfer_norm", "rms_norm",
           "x and weight randn, float16, 1e-3"),
    Listed("Liger", "RMSNorm", "test_liger", "rms_norm",
           "x and dy randn, weight 1, bfloat16, 2e-1 and 2e-2", backward=True),
    Listed("quack", "RMSNorm", "test_quack", "rms_norm",
           "x, dy and weight randn, bfloat16, 1e-1; dweight 5e-6*sqrt(M)", backward=True),
    Listed("Transformer Engine", "layer norm", "test_transformer_engine", "layer_norm",
           "uniform inputs, bfloat16 1e-2, float32 gradients 5e-4; y and gradients from the "
           "kernel's own statistics, those to 5e-5", backward=True),
    Listed("apex", "layer norm", "test_apex", "layer_norm",
           "16 rows of 512, randn, dy U(0, 1), float16, 1e-3; no gradient of a parameter",
           backward=True),
    Listed("KernelBench", "40_LayerNorm", "test_kernelbench", "layer_norm",
           "a row of 4,194,304, U(0, 1), gamma 1, beta 0, half precision, 1e-2, forward only"),
    Listed("FlashInfer", "RMSNorm in e4m3fn", "test_flashinfer_norm_quant",
           "rms_norm,quant=e4m3fn,nan=clamp",
           "x and weight randn, float16 and bfloat16, scales 0.01, 1 and 10, codes at rtol = atol "
           "= 1", kernel="rms_norm_quant", recipe="late/direct"),
    Listed("FlashInfer", "layer norm of diffusion transformers in NVFP4", "test_flashinfer_dit",
           "add_layer_norm,parameters=float32,quant=nvfp4",
           "8 rows of 3072, randn, global scale 100; only types and shapes are compared",
           kernel="add_layer_norm_nvfp4", recipe="late/T"),
    Listed("TensorRT-LLM", "add + RMSNorm in NVFP4", "test_tensorrt_llm",
           "add_rms_norm,quant=nvfp4",
           "x, residual and weight randn, float16 and bfloat16, 97 % of the bytes, scales to one "
           "step, the sum 2e-2", kernel="add_rms_norm_nvfp4", recipe="late/T"),
    Listed("aiter", "add + RMSNorm in int8", "test_aiter",
           "add_rms_norm,quant=int8,scale=per-token",
           "x, residual and weight randn, bfloat16, codes to 1, scales and the sum 1e-2, in 95 % "
           "of the elements", kernel="add_rms_norm_int8", recipe="late/T"),
    Listed("fla", "RMSNorm in int8", "test_fla", "rms_norm,quant=int8,scale=per-token",
           "x and weight randn, code times scale to an error ratio of 1e-2 or to 0.3",
           kernel="rms_norm_int8", recipe="late/T"),
    Listed("none: strict", "RMSNorm", "test_strict_rms_norm", "rms_norm",
           "300 rows of 45, 4 of 769, of size 1 and 1e-3, two eps, `tv.bound`", backward=True),
    Listed("none: strict", "add + RMSNorm", "test_strict_add_rms_norm", "add_rms_norm",
           "8 rows of 45, of size 1 and 1e-3, `tv.bound`"),
    Listed("none: strict", "layer norm", "test_strict_layer_norm", "layer_norm",
           "8 rows of 45, of size 1 and 1e-3, means 0.5 and 100, `tv.bound`"),
    Listed("none: strict", "RMSNorm in e4m3fn", "test_strict_rms_norm_quant",
           "rms_norm,quant=e4m3fn,nan=clamp", SMALL_CASES, kernel="rms_norm_quant",
           recipe="late/direct"),
    Listed("none: strict", "add + RMSNorm in NVFP4", "test_strict_add_rms_norm_nvfp4",
           "add_rms_norm,quant=nvfp4", SMALL_CASES, kernel="add_rms_norm_nvfp4", recipe="late/T"),
    Listed("none: strict", "add + RMSNorm in int8", "test_strict_add_rms_norm_int8",
           "add_rms_norm,quant=int8,scale=per-token", SMALL_CASES, kernel="add_rms_norm_int8",
           recipe="late/T"),
)  # fmt: skip


def audited(listed: Listed, jobs: int) -> dict[str, Any]:
    """Run one audit and return its part of the file."""
    report = audit_tests([listed.path], listed.task, jobs=jobs).as_dict()
    for name in ("machine", "schema", "tests", "seconds"):
        del report[name]
    about = {"project": listed.project, "what": listed.what, "taken": listed.taken}
    about["date"] = date.today().isoformat()
    return {**about, "command": listed.command, **report}


DETAILS = """\
Run {dates}: Python {python}, NumPy {numpy}, {cpu}.

## Details

*Difference* is the largest error of a kernel that passed, and the largest number of that result.
*none* means that the inputs of the tests do not show the error.
*Shown by* is the smallest ordinary [case of the judge](verify.md) on which the kernel fails.
If no ordinary case shows the error, it is a special one."""


def page(report: Mapping[str, Any]) -> str:
    """Return the wrong kernels that each imitation lets pass, and their errors."""
    rows, details = [], []
    for audit in report["audits"]:
        name = f"{audit['project'].removeprefix('none: ')}, {audit['what']}"
        passed = [each for each in audit["outcomes"] if not each["caught"]]
        count = f"{len(passed)} of {len(audit['outcomes'])}"
        names = ", ".join(each["name"] for each in passed) or "none"
        rows.append([name, coloured(count, "fail" if passed else "pass"), names])
        details += [f"### {name}", f"Tested with: {audit['taken']}.", f"    {audit['command']}"]
        if passed:
            head = ["wrong kernel", "what is wrong", "difference", "shown by"]
            details.append(markdown_table(head, [_detail(each) for each in passed], numbers=False))
    table = markdown_table(["imitation", "pass", "wrong kernels that pass"], rows, numbers=False)
    days = sorted({audit["date"] for audit in report["audits"]})
    dates = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    return "\n\n".join([table, DETAILS.format(dates=dates, **report["machine"]), *details]) + "\n"


def _detail(outcome: Mapping[str, Any]) -> list[str]:
    seen = "none"
    if outcome["output"]:
        difference, size = float(outcome["difference"]), float(outcome["size"])
        seen = f"{outcome['output']} by {number(difference)} of {number(size)}"
    case = outcome["witness"]["case"]
    return [outcome["name"], outcome["words"].replace("|", "\\|"), seen, f"`{case}`"]


def main(argv: list[str] | None = None) -> int:
    """Run all audits, save and print."""
    parser = options(
        "holes", "Audit tests that have the inputs and tolerances of other projects.",
        output=FILES[0],
    )  # fmt: skip
    parser.add_argument(
        "--only", default="", metavar="TEXT",
        help="run only names that contain TEXT, and keep the other results of the file",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="runs at once")
    arguments = parser.parse_args(argv)
    os.chdir(ROOT)
    known: dict[str, Any] = {}
    if arguments.only and arguments.output.exists():
        published = json.loads(arguments.output.read_text(encoding="utf-8"))["audits"]
        known = {f"{each['project']}, {each['what']}": each for each in published}
    audits = []
    for each in LISTED:
        name = f"{each.project}, {each.what}"
        if arguments.only in name:
            status_line(name)
            audits.append(audited(each, arguments.jobs))
        elif name in known:
            audits.append(known[name])
    status_line()
    facts = machine(usable_cores(), packages=("numpy", "pytest"))
    publish({"machine": facts, "audits": audits}, arguments.output, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
