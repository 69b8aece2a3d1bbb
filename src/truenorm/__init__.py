"""Correctly rounded layer normalization and RMSNorm for NumPy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truenorm import cost, ranks, textbook, verify
    from truenorm.api.backends import backends
    from truenorm.api.layer_norm import layer_norm, layer_norm_backward, layer_norm_forward
    from truenorm.api.rms_norm import rms_norm, rms_norm_backward, rms_norm_forward
    from truenorm.api.saved import Gradients, Saved
    from truenorm.gradient_check import (
        GradientCheck,
        StepsCheck,
        TaylorTest,
        dot_test,
        gradcheck,
        gradcheck_steps,
        taylor_test,
    )
    from truenorm.partials.backward import (
        layer_norm_backward_partial,
        rms_norm_backward_partial,
    )
    from truenorm.partials.gradients import PartialGradients, RoundedGradients

__all__ = [
    "GradientCheck",
    "Gradients",
    "PartialGradients",
    "RoundedGradients",
    "Saved",
    "StepsCheck",
    "TaylorTest",
    "__version__",
    "backends",
    "cost",
    "dot_test",
    "gradcheck",
    "gradcheck_steps",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_backward_partial",
    "layer_norm_forward",
    "ranks",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_backward_partial",
    "rms_norm_forward",
    "taylor_test",
    "textbook",
    "verify",
]

__version__ = "0.1.0.dev0"

# The module of each public name, imported on first access: the gradient check does not load the
# kernels, and the kernels do not load the gradient check.
_HOMES = {
    "GradientCheck": "truenorm.gradient_check",
    "Gradients": "truenorm.api.saved",
    "PartialGradients": "truenorm.partials.gradients",
    "RoundedGradients": "truenorm.partials.gradients",
    "Saved": "truenorm.api.saved",
    "StepsCheck": "truenorm.gradient_check",
    "TaylorTest": "truenorm.gradient_check",
    "backends": "truenorm.api.backends",
    "dot_test": "truenorm.gradient_check",
    "gradcheck": "truenorm.gradient_check",
    "gradcheck_steps": "truenorm.gradient_check",
    "layer_norm": "truenorm.api.layer_norm",
    "layer_norm_backward": "truenorm.api.layer_norm",
    "layer_norm_backward_partial": "truenorm.partials.backward",
    "layer_norm_forward": "truenorm.api.layer_norm",
    "rms_norm": "truenorm.api.rms_norm",
    "rms_norm_backward": "truenorm.api.rms_norm",
    "rms_norm_backward_partial": "truenorm.partials.backward",
    "rms_norm_forward": "truenorm.api.rms_norm",
    "taylor_test": "truenorm.gradient_check",
}
_MODULES = ("cost", "ranks", "textbook", "verify")


def __getattr__(name: str) -> Any:
    """Import a public name (PEP 562)."""
    if name in _MODULES:
        return import_module(f"truenorm.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'truenorm' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
