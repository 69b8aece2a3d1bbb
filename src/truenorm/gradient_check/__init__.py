"""Check a hand-written backward pass against its forward pass."""

from truenorm.gradient_check.checker import dot_test, gradcheck
from truenorm.gradient_check.result import GradientCheck, InputCheck, Verdict
from truenorm.gradient_check.steps import StepsCheck, gradcheck_steps
from truenorm.gradient_check.taylor import TaylorTest, taylor_test

__all__ = [
    "GradientCheck",
    "InputCheck",
    "StepsCheck",
    "TaylorTest",
    "Verdict",
    "dot_test",
    "gradcheck",
    "gradcheck_steps",
    "taylor_test",
]
