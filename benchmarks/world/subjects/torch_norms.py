"""Norms of packages on PyTorch that need more than their path."""

from importlib import import_module
from typing import Any

import truenorm.verify as tv

torch: Any = import_module("torch")
functional = torch.nn.functional


def curated(size: int, eps: float) -> Any:
    """Return a module of Curated Transformers."""
    return import_module("curated_transformers.layers.normalization").RMSNorm(size, eps=eps)


def esm(size: int, eps: float) -> Any:
    """Return a module of ESM."""
    return import_module("esm.modules").ESM1LayerNorm(size, eps)


def inductor_layer_norm() -> tv.Subject:
    """Return the layer norm that Inductor generates and compiles."""

    @torch.compile(dynamic=True)  # type: ignore[untyped-decorator]
    def function(x: Any, weight: Any, bias: Any, eps: float) -> Any:
        return functional.layer_norm(x, [x.shape[-1]], weight, bias, eps)

    return tv.torch_subject(function, operation="layer_norm", backward=False)


def liger(name: str) -> Any:
    """Return a module of Liger."""
    return getattr(import_module("liger_kernel.transformers"), name)


def __getattr__(name: str) -> tv.Subject:
    """Make a subject when it is asked for: its package is imported then."""
    modules = {
        "curated_rms_norm": (curated, "rms_norm"),
        "esm_layer_norm": (esm, "layer_norm"),
    }
    if name == "inductor":
        return inductor_layer_norm()
    if name in modules:
        function, operation = modules[name]
        return tv.torch_subject(function, operation=operation, form="module", name=name)
    raise AttributeError(name)
