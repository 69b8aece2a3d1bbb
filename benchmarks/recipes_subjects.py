"""Whose recipe ``python -m benchmarks.recipes`` finds, and in which environment it runs."""

from typing import NamedTuple

from benchmarks.peer.environments import RECIPES, ROOT, Peer

__all__ = ["ENVIRONMENTS", "FORMULA", "LISTED", "Listed"]

ENVIRONMENTS: dict[str, Peer] = {"torch": RECIPES}
"""By the name that ``--python`` gives."""
FORMULA = "from its formula"
"""What is said of what was not run itself."""
HERE = ROOT / "benchmarks" / "recipe_subjects"
JUDGED = ROOT / "benchmarks" / "judged"
MODELS = "torch:transformers.models"
WIDE = "parameters=float32"
"""Weights of float32 with x of 16 bits."""


class Listed(NamedTuple):
    """One line of the table: a subject, taken for an operation."""

    project: str
    what: str
    operation: str
    target: str
    package: str = FORMULA


def _hugging_face(model: str, name: str, *operations: str) -> list[Listed]:
    path = f"{MODELS}.{model}.modeling_{model}.{name}"
    return [Listed("Hugging Face", name, each, path, "transformers") for each in operations]


def _functional(name: str, *operations: str) -> list[Listed]:
    path = f"torch:torch.nn.functional.{name}"
    return [Listed("PyTorch", name, each, path, "torch") for each in operations]


def _formula(project: str, what: str, target: str, *operations: str) -> list[Listed]:
    path = f"{HERE / 'formulas.py'}:{target}"
    return [Listed(project, what, each, path) for each in operations]


PLAIN = ("rms_norm", f"rms_norm,{WIDE}")
HF_WIDE = f"rms_norm,{WIDE},result=float32"
ZERO_CENTRED = ("rms_norm,gain=zero-centred", f"rms_norm,gain=zero-centred,{WIDE}")
MLX = HERE / "mlx_arrays.py"
ONNX = JUDGED / "onnx_reference.py"
RUNTIME = JUDGED / "onnx_runtime.py"

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
    Listed("quack", "rmsnorm_ref", "rms_norm", f"{HERE / 'references.py'}:quack", "quack-kernels"),
    *(
        Listed("MLX", f"fast.{each}", each, f"{MLX}:{each}", "mlx")
        for each in ("rms_norm", "layer_norm")
    ),
    Listed("ONNX", "RMSNormalization-23, reference", "rms_norm", f"{ONNX}:rms_norm", "onnx"),
    Listed("ONNX", "LayerNormalization-17, reference", "layer_norm", f"{ONNX}:subject", "onnx"),
    Listed(
        "ONNX Runtime", "RMSNormalization-23", "rms_norm", f"{RUNTIME}:rms_norm", "onnxruntime"
    ),
    Listed(
        *("ONNX Runtime", "SimplifiedLayerNormalization"),
        *("rms_norm", f"{RUNTIME}:simplified", "onnxruntime"),
    ),
    Listed(
        "ONNX Runtime", "LayerNormalization-17", "layer_norm", f"{RUNTIME}:subject", "onnxruntime"
    ),
]
# Of vLLM's CUDA kernels, vllm#40860 made late what was early (csrc/layernorm_kernels.cu at commit
# 0112cf23), and vllm#42379 and #49639 dispute it; of Liger's, liger-kernel 0.8.5 has the sources.
FROM_FORMULAS = [
    *_formula("vLLM", "rms_norm, CUDA kernel", "plain_late", *PLAIN),
    *_formula("vLLM", "rms_norm, CUDA kernel to 0.19.1", "plain_early", "rms_norm"),
    *_formula("vLLM", "RMSNorm, native path", "plain_vllm_native", *PLAIN),
    *_formula("FlashInfer", "rmsnorm", "plain_late", "rms_norm"),
    *_formula("quack", "rmsnorm", "plain_late", *PLAIN),
    *_formula("Transformer Engine", "RMSNorm", "plain_late", "rms_norm"),
    *_formula("Transformer Engine", "RMSNorm, zero-centred", "plain_zero_centred", *ZERO_CENTRED),
    *_formula(
        *("Transformer Engine", "the same, 1 added in W", "plain_one_added"), ZERO_CENTRED[0]
    ),
    *_formula("apex", "RMSNorm", "plain_apex_rms_norm", "rms_norm"),
    *_formula("apex", "layer norm", "plain_apex_layer_norm", "layer_norm"),
    *_formula("Liger", 'RMSNorm, "llama"', "plain_early", *PLAIN),
    *_formula("Liger", 'RMSNorm, "gemma"', "plain_zero_centred", ZERO_CENTRED[0]),
    *_formula("Liger", 'RMSNorm, "none"', "plain_liger_none", "rms_norm"),
    *_formula("vLLM", "fused_add_rms_norm, CUDA kernel", "fused_rounded", "add_rms_norm"),
    *_formula(
        *("vLLM", "fused_add_rms_norm, CUDA kernel to 0.19.1", "fused_early"), "add_rms_norm"
    ),
    *_formula("vLLM", "RMSNorm with residual, native path", "fused_native", "add_rms_norm"),
    *_formula("FlashInfer", "fused_add_rmsnorm", "fused_unrounded", "add_rms_norm"),
    *_formula("quack", "rmsnorm with residual", "fused_unrounded", "add_rms_norm"),
    *_formula("Liger", 'fused add and RMSNorm, "llama"', "fused_early", "add_rms_norm"),
]
LISTED = [*RUN, *FROM_FORMULAS]
"""What was run itself, then what was written anew."""
