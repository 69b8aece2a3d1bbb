"""Check a hand-written backward pass against its forward pass."""

from truenorm.gradient_check.checker import dot_test, gradcheck
from truenorm.gradient_check.result import GradientCheck, InputCheck, Verdict
from truenorm.gradient_check.taylor import TaylorTest, taylor_test

__all__ = [
    "GradientCheck",
    "InputCheck",
    "TaylorTest",
    "Verdict",
    "dot_test",
    "gradcheck",
    "taylor_test",
]
