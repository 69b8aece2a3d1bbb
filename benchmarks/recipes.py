"""``python -m benchmarks.recipes``: find where norms round on the way to 16 bits, by their bits.

Each subject runs on the judge's ordinary cases in a process of its own, in an environment that has
its package; ``--python PATH`` is an interpreter with all packages, else an environment is created.
The report goes to results/recipes.json, which docs/reference/recipes.md shows.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import RESULTS, ROOT, machine, markdown_table, options, publish
from benchmarks.environments import RECIPES, VARIABLES, python_for, versions
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.verify import Recipe, cases
from truenorm.verify.calls import Call
from truenorm.verify.grading.grades import grade
from truenorm.verify.operations import parse_operation
from truenorm.verify.running.process import SubjectProcess
from truenorm.verify.running.records import CannotRunError

FILES = (RESULTS / "recipes.json",)
DTYPES = ("bfloat16", "float16")
COMMON = ("numpy", "ml_dtypes", "torch")
FORMULA = "from its formula"
"""The package of a subject that is computed from its formula."""
SUBJECTS = ROOT / "benchmarks" / "subjects"
WIDE = "parameters=float32"
"""Float32 weights with 16-bit x."""


class Listed(NamedTuple):
    """One line of the table: a subject, and the operation it is judged as."""

    project: str
    what: str
    operation: str
    target: str
    package: str = FORMULA


def _hugging_face(model: str, name: str, *operations: str) -> list[Listed]:
    path = f"torch:transformers.models.{model}.modeling_{model}.{name}"
    return [Listed("Hugging Face", name, each, path, "transformers") for each in operations]


def _functional(name: str, *operations: str) -> list[Listed]:
    path = f"torch:torch.nn.functional.{name}"
    return [Listed("PyTorch", name, each, path, "torch") for each in operations]


def _formula(project: str, what: str, target: str, *operations: str) -> list[Listed]:
    path = f"{SUBJECTS / 'recipe_formulas.py'}:{target}"
    return [Listed(project, what, each, path) for each in operations]


def _file(project: str, what: str, target: str, package: str) -> Listed:
    file, _, name = target.partition(":")
    operation = "layer_norm" if name.endswith("layer_norm") else "rms_norm"
    return Listed(project, what, operation, f"{SUBJECTS / file}.py:{name}", package)


PLAIN = ("rms_norm", f"rms_norm,{WIDE}")
HF_WIDE = f"rms_norm,{WIDE},result=float32"
ZERO_CENTRED = ("rms_norm,gain=zero-centred", f"rms_norm,gain=zero-centred,{WIDE}")
RUN = [
    *_functional("rms_norm", *PLAIN),
    *_functional("layer_norm", "layer_norm", f"layer_norm,{WIDE}"),
    *_hugging_face("llama", "LlamaRMSNorm", "rms_norm", HF_WIDE),
    *_hugging_face("mistral", "MistralRMSNorm", "rms_norm"),
    *_hugging_face("qwen3", "Qwen3RMSNorm", "rms_norm"),
    *_hugging_face("gpt_oss", "GptOssRMSNorm", *PLAIN),
    *_hugging_face("olmo2", "Olmo2RMSNorm", *PLAIN),
    *_hugging_face("t5", "T5LayerNorm", "rms_norm", HF_WIDE),
    *_hugging_face("gemma", "GemmaRMSNorm", *ZERO_CENTRED),
    *_hugging_face("gemma2", "Gemma2RMSNorm", "rms_norm,gain=zero-centred"),
    *_hugging_face("gemma3", "Gemma3RMSNorm", "rms_norm,gain=zero-centred"),
    *_hugging_face("gemma4", "Gemma4RMSNorm", *PLAIN),
    *_hugging_face("qwen3_next", "Qwen3NextRMSNorm", "rms_norm,gain=zero-centred"),
    Listed("LitGPT", "RMSNorm", "rms_norm", "torch:litgpt.model.RMSNorm", "litgpt"),
    _file("quack", "rmsnorm_ref", "recipe_packages:quack", "quack-kernels"),
    _file("MLX", "fast.rms_norm", "recipe_packages:rms_norm", "mlx"),
    _file("MLX", "fast.layer_norm", "recipe_packages:layer_norm", "mlx"),
    _file("ONNX", "RMSNormalization-23, reference", "onnx_subjects:rms_norm", "onnx"),
    _file("ONNX", "LayerNormalization-17, reference", "onnx_subjects:layer_norm", "onnx"),
    _file("ONNX Runtime", "RMSNormalization-23", "onnx_subjects:runtime_rms_norm", "onnxruntime"),
    _file(
        "ONNX Runtime", "SimplifiedLayerNormalization", "onnx_subjects:simplified", "onnxruntime"
    ),
    _file(
        "ONNX Runtime", "LayerNormalization-17", "onnx_subjects:runtime_layer_norm", "onnxruntime"
    ),
]
# vllm#40860 changed vLLM's CUDA kernels from early to late (csrc/layernorm_kernels.cu at commit
# 0112cf23); vllm#42379 and #49639 dispute it. Liger's are those of liger-kernel 0.8.5.
FROM_FORMULAS = [
    *_formula("vLLM", "rms_norm, CUDA kernel", "plain_late", *PLAIN),
    *_formula("vLLM", "rms_norm, CUDA kernel to 0.19.1", "plain_early", "rms_norm"),
    *_formula("vLLM", "RMSNorm, native path", "plain_vllm_native", *PLAIN),
    *_formula("FlashInfer", "rmsnorm", "plain_late", "rms_norm"),
    *_formula("quack", "rmsnorm", "plain_late", *PLAIN),
    *_formula("Transformer Engine", "RMSNorm", "plain_late", "rms_norm"),
    *_formula("Transformer Engine", "RMSNorm, zero-centred", "plain_zero_centred", *ZERO_CENTRED),
    *_formula("Transformer Engine", "the same, 1 added in W", "plain_one_added", ZERO_CENTRED[0]),
    *_formula("apex", "RMSNorm", "plain_apex_rms_norm", "rms_norm"),
    *_formula("apex", "layer norm", "plain_apex_layer_norm", "layer_norm"),
    *_formula("Liger", 'RMSNorm, "llama"', "plain_early", *PLAIN),
    *_formula("Liger", 'RMSNorm, "gemma"', "plain_zero_centred", ZERO_CENTRED[0]),
    *_formula("Liger", 'RMSNorm, "none"', "plain_liger_none", "rms_norm"),
    *_formula("vLLM", "fused_add_rms_norm, CUDA kernel", "fused_rounded", "add_rms_norm"),
    *_formula("vLLM", "fused_add_rms_norm, CUDA kernel to 0.19.1", "fused_early", "add_rms_norm"),
    *_formula("vLLM", "RMSNorm with residual, native path", "fused_native", "add_rms_norm"),
    *_formula("FlashInfer", "fused_add_rmsnorm", "fused_unrounded", "add_rms_norm"),
    *_formula("quack", "rmsnorm with residual", "fused_unrounded", "add_rms_norm"),
    *_formula("Liger", 'fused add and RMSNorm, "llama"', "fused_early", "add_rms_norm"),
]
LISTED = [*RUN, *FROM_FORMULAS]


def examine(listed: Listed, python: Path) -> dict[str, Any]:
    """Return the recipes of a subject, or why it cannot run."""
    entry: dict[str, Any] = {
        "project": listed.project,
        "what": listed.what,
        "operation": listed.operation,
        "ran": listed.package != FORMULA,
        "package": listed.package,
    }
    how: dict[str, Any] = {"python": str(python), "environment": VARIABLES}
    try:
        with SubjectProcess(listed.target, operation=listed.operation, **how) as process:
            dtypes = [each for each in DTYPES if each in process.subject.dtypes]
            recipes = {each: recipe_in(process, each, listed.operation) for each in dtypes}
    except CannotRunError as error:
        return {**entry, "cannot": str(error).strip().splitlines()[-1]}
    return {**entry, "recipes": recipes}


def recipe_in(process: SubjectProcess, dtype: str, words: str) -> dict[str, Any]:
    """Run the ordinary cases of a type, and return the recipe that the bits show."""
    operation = parse_operation(words)
    suite = [each for each in cases(dtype, operation=operation) if each.family == "normal"]
    records = [process.run(each, Call()) for each in suite]
    if failures := [each.failure for each in records if each.failure]:
        return {"failed": failures[0].splitlines()[0]}
    outputs = operation.outputs_of(backward=False)
    report = grade("", suite, records, outputs=outputs, require="wrong")
    grades = {each.output: each.grade for each in report.grades}
    symptoms = [each.symptom for each in report.findings if each.guard in ("shape", "type")]
    if symptoms or not report.recipes:
        return {"failed": symptoms[0] if symptoms else "no result could be measured"}
    return {**summary(report.recipes[0]), "grades": grades}


def summary(recipe: Recipe) -> dict[str, Any]:
    """Return the names that fit, and the share of each recipe."""
    shares = {name: round(share, 6) for name, share in recipe.shares.items()}
    return {"names": list(recipe.names), "shares": shares}


RAN = """\
### Run on a CPU

The last two columns have the share of decided elements with the bits of a recipe.
They show the best recipe and the next.
The rows are those of the judge's ordinary cases.
Recipes in parentheses give the same bits for these types.
Run on {date}: {cpu}, Python {python}, {versions}."""
WRITTEN = """\
### Computed from the formula

These kernels need a GPU, or did not install.
NumPy computes their formula in float32; the bits are those of the formula, not of the kernel."""


def page(report: Mapping[str, Any]) -> str:
    """Return the recipes of norms that ran, and of those that are computed from their formulas."""
    packages = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    parts = [
        RAN.format(**{**report["machine"], "versions": packages}),
        _table(each for each in report["subjects"] if each["ran"]),
        WRITTEN,
        _table(each for each in report["subjects"] if not each["ran"]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(subjects: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{each['project']}, {each['what']}",
            _recipe(each),
            each["operation"].replace(",", ", "),
            *(_shares(each, dtype) for dtype in DTYPES),
        ]
        for each in subjects
    ]
    head = ["norm", "recipe", "judged as", *(f"{dtype}, %" for dtype in DTYPES)]
    return markdown_table(head, rows, numbers=False)


def _recipe(subject: Mapping[str, Any]) -> str:
    """Return the recipe, and the types in which it is another one; or why there is none."""
    if "cannot" in subject:
        return f"cannot run: {subject['cannot']}"
    names = {dtype: _name(subject, each) for dtype, each in subject["recipes"].items()}
    first = next(iter(names.values()))
    return "; ".join([first, *(f"{dtype}: {n}" for dtype, n in names.items() if n != first)])


def _name(subject: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    if "failed" in recipe:
        return f"fails: {recipe['failed']}"
    if recipe["names"]:
        name, *same = recipe["names"]
        return f"**{name}**" + (f" ({', '.join(same)})" if same else "")
    quality = recipe["grades"]["y"]
    if quality == "wrong":
        return "no recipe fits, y is wrong"
    # A float32 result that was rounded to 16 bits on the way would not be stable.
    if "result=float32" in subject["operation"] and quality in ("stable", "faithful", "correct"):
        return "nothing is rounded to 16 bits"
    return "no recipe fits"


def _shares(subject: Mapping[str, Any], dtype: str) -> str:
    """Return the two largest shares."""
    recipe = {} if "cannot" in subject else subject["recipes"].get(dtype, {})
    shares = {} if "failed" in recipe else recipe.get("shares", {})
    order = sorted(shares, key=lambda name: -shares[name])[:2]
    return "; ".join(f"{name} {100 * shares[name]:.2f}" for name in order) or "-"


def measure(only: str, python: Path) -> dict[str, Any]:
    """Examine the subjects whose names contain `only`, and return the report."""
    chosen = [each for each in LISTED if only in f"{each.project} {each.what}"]
    packages = dict.fromkeys([*COMMON, *(each.package for each in chosen)])
    packages.pop(FORMULA, None)
    subjects = []
    for each in chosen:
        status_line(f"{each.project} {each.what}, {each.operation}")
        subjects.append(examine(each, python))
    status_line()
    numbers = versions(python, packages)
    return {
        "machine": machine(usable_cores(), packages=("numpy",)),
        "versions": {name: numbers[name] for name in packages},
        "subjects": subjects,
    }


def main(argv: list[str] | None = None) -> int:
    """Examine all subjects, save and print."""
    parser = options("recipes", "Find where norms round, by their bits.", output=FILES[0])
    parser.add_argument("--python", type=Path, help="an interpreter that has all packages")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only projects and names that contain TEXT"
    )
    arguments = parser.parse_args(argv)
    report = measure(arguments.only, arguments.python or python_for(RECIPES))
    publish(report, arguments.output, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
