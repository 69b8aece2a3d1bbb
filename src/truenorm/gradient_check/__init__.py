"""Check a hand-written backward pass against its forward pass."""

from truenorm.gradient_check.checker import gradcheck
from truenorm.gradient_check.result import GradientCheck, InputCheck

__all__ = ["GradientCheck", "InputCheck", "gradcheck"]
