"""Where a failure was reported: from "pytorch#51102" to the page of that issue."""

import re

__all__ = ["REPOSITORIES", "link"]

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
