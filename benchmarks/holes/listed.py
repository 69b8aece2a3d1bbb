"""The audits of the page: which imitation, whose place is taken, and what is the project's."""

from typing import NamedTuple

from truenorm.verify.audit.replacing import Task

__all__ = ["LISTED", "Listed"]


class Listed(NamedTuple):
    """An audit. `tests` are below benchmarks/holes; `taken` says what is the project's."""

    project: str
    what: str
    tests: str
    replace: str
    operation: str
    taken: str
    backward: str = ""

    @property
    def task(self) -> Task:
        """What `truenorm audit` is asked for."""
        module = "benchmarks.holes.kernels:"
        backward = module + self.backward if self.backward else ""
        return Task(module + self.replace, self.operation, backward)

    @property
    def command(self) -> str:
        """The command line that does the same."""
        task = self.task
        backward = f" --backward {task.backward}" if task.backward else ""
        tests = f"'benchmarks/holes/{self.tests}'" if "[" in self.tests else self.path
        return (
            f"truenorm audit {tests} --replace {task.replace}{backward} "
            f"--operation {self.operation}"
        )

    @property
    def path(self) -> str:
        """What pytest is given."""
        return f"benchmarks/holes/{self.tests}"


PLAIN, ADD = ("rms_norm", "rms_norm"), ("add_rms_norm", "add_rms_norm")
LAYER = ("layer_norm", "layer_norm")
OF_VLLM = "x and residual randn/(2H), weight N(1, 0.1), 1e-2 for all types"
LISTED = (
    Listed("vLLM", "RMSNorm, H = 5120", "vllm.py::test_rms_norm[5120]", *PLAIN, OF_VLLM),
    Listed("vLLM", "RMSNorm, H from 8 to 8192", "vllm.py::test_rms_norm", *PLAIN, OF_VLLM),
    Listed("vLLM", "add + RMSNorm, H = 768", "vllm.py::test_add_rms_norm[768]", *ADD, OF_VLLM),
    Listed("vLLM", "add + RMSNorm, H = 5120", "vllm.py::test_add_rms_norm[5120]", *ADD, OF_VLLM),
    Listed(
        "FlashInfer",
        "RMSNorm",
        "flashinfer.py::test_norm",
        *PLAIN,
        "x and weight randn, float16, 1e-3",
    ),
    Listed(
        "FlashInfer",
        "RMSNorm, quantized",
        "flashinfer.py::test_norm_quant",
        *PLAIN,
        "the same, 8 bits, rtol = atol = 1",
    ),
    Listed(
        "Liger",
        "RMSNorm",
        "liger.py",
        *PLAIN,
        "x and dy randn, weight 1, bfloat16, 2e-1 and 2e-2",
        "rms_norm_backward",
    ),
    Listed(
        "quack",
        "RMSNorm",
        "quack.py",
        *PLAIN,
        "x, dy and weight randn, bfloat16, 1e-1; dweight 5e-6*sqrt(M)",
        "rms_norm_backward",
    ),
    Listed(
        "Transformer Engine",
        "layer norm",
        "transformer_engine.py",
        *LAYER,
        "uniform inputs, bfloat16 1e-2, float32 gradients 5e-4; y and gradients from the kernel's "
        "own statistics, those to 5e-5",
        "layer_norm_backward",
    ),
    Listed(
        "apex",
        "layer norm",
        "apex.py",
        *LAYER,
        "16 rows of 512, randn, dy U(0, 1), float16, 1e-3; no gradient of a parameter",
        "layer_norm_backward",
    ),
    Listed(
        "KernelBench",
        "40_LayerNorm",
        "kernelbench.py",
        *LAYER,
        "a row of 4,194,304, U(0, 1), gamma 1, beta 0, half precision, 1e-2, forward only",
    ),
    Listed(
        "none: strict",
        "RMSNorm",
        "strict.py::test_rms_norm",
        *PLAIN,
        "300 rows of 45, 4 of 769, of size 1 and 1e-3, two eps, `tv.bound`",
        "rms_norm_backward",
    ),
    Listed(
        "none: strict",
        "add + RMSNorm",
        "strict.py::test_add_rms_norm",
        *ADD,
        "8 rows of 45, of size 1 and 1e-3, `tv.bound`",
    ),
    Listed(
        "none: strict",
        "layer norm",
        "strict.py::test_layer_norm",
        *LAYER,
        "8 rows of 45, of size 1 and 1e-3, means 0.5 and 100, `tv.bound`",
    ),
)
