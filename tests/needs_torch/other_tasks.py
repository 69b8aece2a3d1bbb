"""Small tasks in the manner of KernelBench and FlashInfer-Bench, and solutions.

They were written for these tests. A solution computes in float64 and rounds once, unless its name
says what is wrong.
"""

import json
from pathlib import Path

HEAD = "import torch\nfrom torch import nn\n\n"
ROUNDED = """
def normalized(x, axes, eps, centred=True, mean=True):
    wide = x.double()
    c = wide - wide.mean(axes, keepdim=True) if centred else wide
    squares = (c * c).mean(axes, keepdim=True) if mean else (c * c).sum(axes, keepdim=True)
    return c / torch.sqrt(squares + eps)

F32 = float(torch.tensor(EPS))
"""


def problem(init: str, layers: str, result: str, given: str) -> str:
    lines = "".join(f"        {line}\n" for line in layers.splitlines())
    return (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self{init}):\n"
        f"        super().__init__()\n{lines}\n    def forward(self, x):\n"
        f"        return {result}\n\ndef get_inputs():\n    return [torch.rand(2, 4, 3, 3)]\n\n"
        f"def get_init_inputs():\n    return {given}\n"
    )


PROBLEMS = {
    "34_InstanceNorm": problem(", n", "self.inorm = nn.InstanceNorm2d(n)", "self.inorm(x)", "[4]"),
    "35_GroupNorm_": problem(", n, groups", "self.gn = nn.GroupNorm(groups, n)", "self.gn(x)",
        "[4, 2]"),
    "36_RMSNorm_": problem(", n, eps=1e-5", "self.eps = eps",
        "x / torch.sqrt((x * x).mean(1, keepdim=True) + self.eps)", "[4]"),
    "37_FrobeniusNorm_": problem("", "pass", "x / torch.linalg.norm(x)", "[]"),
    "39_L2Norm_": problem("", "pass", "x / torch.linalg.norm(x, dim=1, keepdim=True)", "[]"),
    "40_LayerNorm": problem(", shape", "self.ln = nn.LayerNorm(shape)", "self.ln(x)",
        "[(4, 3, 3)]"),
}  # fmt: skip


def model(init: str, layers: str, lines: str, eps: float = 1e-5) -> str:
    made = "".join(f"        {line}\n" for line in layers.splitlines())
    body = "".join(f"        {line}\n" for line in lines.splitlines())
    return (
        f"{HEAD}EPS = {eps}\n{ROUNDED}\nclass ModelNew(nn.Module):\n"
        f"    def __init__(self{init}):\n        super().__init__()\n{made}\n"
        f"    def forward(self, x):\n{body}"
    )


AFFINE = "self.gamma = nn.Parameter(torch.ones(n))\nself.beta = nn.Parameter(torch.zeros(n))"
GROUPED = """\
g = x.reshape(len(x), self.groups, -1)
y = normalized(g, -1, F32).reshape(x.shape)
shape = (1, -1, *[1] * (x.ndim - 2))
y = y * self.gamma.double().reshape(shape) + self.beta.double().reshape(shape)"""
SOLUTIONS = {
    "34_InstanceNorm": model(", n", "pass", "return normalized(x, (2, 3), F32).to(x.dtype)"),
    "35_GroupNorm_": model(
        ", n, groups", f"self.groups = groups\n{AFFINE}", f"{GROUPED}\nreturn y.to(x.dtype)"
    ),
    "36_RMSNorm_": model(", n", "pass", "return normalized(x, 1, F32, False).to(x.dtype)"),
    "37_FrobeniusNorm_": model(
        "", "pass", "axes = tuple(range(x.ndim))\n"
        "return normalized(x, axes, 0.0, False, False).to(x.dtype)",
    ),
    "39_L2Norm_": model("", "pass", "return normalized(x, 1, 0.0, False, False).to(x.dtype)"),
    "40_LayerNorm": model(
        ", shape",
        "self.scale_weight = nn.Parameter(torch.ones(shape))\n"
        "self.shift_bias = nn.Parameter(torch.zeros(shape))",
        "y = normalized(x, (1, 2, 3), F32) * self.scale_weight.double()\n"
        "return (y + self.shift_bias.double()).to(x.dtype)",
    ),
}  # fmt: skip
"""By problem, with other names of parameters than the problem has."""

AXES = {"batch_size": {"type": "var"}, "hidden_size": {"type": "const", "value": 64}}
ROWS = {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"}
WEIGHT = {"shape": ["hidden_size"], "dtype": "bfloat16"}
REFERENCE = """
import torch

def run(hidden_states, weight):
    EPS = 1e-6
    x = hidden_states.float()
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * weight).to(torch.bfloat16)
"""
DEFINITION = {
    "name": "rmsnorm_h64",
    "op_type": "rmsnorm",
    "axes": AXES,
    "inputs": {"hidden_states": ROWS, "weight": WEIGHT},
    "outputs": {"output": ROWS},
    "reference": REFERENCE,
}
FUSED_DEFINITION = {
    **DEFINITION,
    "op_type": "fused_add_rmsnorm",
    "inputs": {"hidden_states": ROWS, "residual": ROWS, "weight": WEIGHT},
}
RUN = f"""{HEAD}EPS = 1e-6{ROUNDED}
def run(hidden_states, weight, output):
    y = normalized(hidden_states, -1, F32, False) * weight.double()
    output.copy_(y.to(output.dtype))
"""
RETURNING_RUN = RUN.replace(", output)", ")").replace(
    "    output.copy_(y.to(output.dtype))", "    return y.to(weight.dtype)"
)
FUSED_RUN = RUN.replace("hidden_states, weight", "hidden_states, residual, weight").replace(
    "normalized(hidden_states,", "normalized(hidden_states.double() + residual.double(),"
)


def solution(run: str, *, returns: bool) -> dict[str, object]:
    """Return a solution of FlashInfer-Bench whose entry point imports another file."""
    return {
        "name": "mine",
        "definition": "rmsnorm_h64",
        "author": "truenorm",
        "spec": {
            "language": "triton",
            "target_hardware": ["cpu"],
            "entry_point": "main.py::call",
            **({"destination_passing_style": False} if returns else {}),
        },
        "sources": [
            {"path": "main.py", "content": "from .kernels.norm import run as call\n"},
            {"path": "kernels/norm.py", "content": run},
        ],
    }


def write(folder: Path, name: str, content: object) -> Path:
    """Write a file, as JSON unless it is text, and return its path."""
    text = content if isinstance(content, str) else json.dumps(content)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
