"""Norms in Triton of Liger and of flash-linear-attention, run by Triton's interpreter.

The interpreter of Triton 3.9 has no device, and three things fail without one: an autotuner with
several configurations times them, so the first is taken; a libdevice function has no code, so
`tl.math` computes rsqrt; and a number of Python is no value of float32, so it is made one.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import truenorm.verify as tv

SECONDS = 300.0
"""The time limit of a call: the interpreter takes milliseconds for a program."""


def liger(module: str, name: str) -> Any:
    """Return a function of autograd of Liger, with rsqrt of Triton."""
    language = import_module("triton.language")
    source: Any = import_module(f"liger_kernel.ops.{module}")
    source.rsqrt = lambda value: language.math.rsqrt(value)
    accept_floats()
    return getattr(source, name)


def accept_floats() -> None:
    """Let the interpreter make a float that is an argument of a kernel a value of float32."""
    language = import_module("triton.language")
    interpreter: Any = import_module("triton.runtime.interpreter")
    convert: Callable[[Any], Any] = interpreter._implicit_cvt

    def with_floats(value: Any) -> Any:
        if not isinstance(value, float):
            return convert(value)
        handle = interpreter.TensorHandle(np.array([value], np.float32), language.float32)
        return language.tensor(handle, language.float32)

    interpreter._implicit_cvt = with_floats


def flash_linear_attention() -> Any:
    """Return the module of norms; its kernels have the first configuration of their autotuners."""
    tuners = import_module("triton.runtime.autotuner")
    module = import_module("fla.modules.norm.layernorm")
    for value in vars(module).values():
        kernel = value
        while isinstance(kernel, tuners.Autotuner | tuners.Heuristics):
            if isinstance(kernel, tuners.Autotuner):
                kernel.configs = kernel.configs[:1]
            kernel = kernel.fn
    return module


def liger_rms_norm() -> tv.Subject:
    """Return Liger's RMSNorm as of Llama."""
    function = liger("rms_norm", "LigerRMSNormFunction")

    def forward(x: Any, weight: Any, eps: float) -> Any:
        return function.apply(x, weight, eps, 0.0, "llama", False, None)

    return subject(forward, "rms_norm")


def liger_layer_norm() -> tv.Subject:
    """Return Liger's layer norm."""
    function = liger("layer_norm", "LigerLayerNormFunction")
    return subject(lambda x, weight, bias, eps: function.apply(x, weight, bias, eps), "layer_norm")


def fla_rms_norm() -> tv.Subject:
    """Return the RMSNorm of flash-linear-attention."""
    module = flash_linear_attention()
    return subject(lambda x, weight, eps: module.rms_norm(x, weight, None, eps=eps), "rms_norm")


def fla_layer_norm() -> tv.Subject:
    """Return the layer norm of flash-linear-attention."""
    module = flash_linear_attention()
    return subject(
        lambda x, weight, bias, eps: module.layer_norm(x, weight, bias, eps=eps), "layer_norm"
    )


def subject(function: Callable[..., Any], operation: str) -> tv.Subject:
    """Return a subject of float32: the interpreter truncates to bfloat16."""
    return tv.torch_subject(
        function, operation=operation, dtypes=["float32"], seconds=SECONDS, backward=True
    )


def __getattr__(name: str) -> tv.Subject:
    """Make a subject when it is asked for: its package is imported then."""
    made: dict[str, Callable[[], tv.Subject]] = {
        "liger_rms": liger_rms_norm,
        "liger_layer": liger_layer_norm,
        "fla_rms": fla_rms_norm,
        "fla_layer": fla_layer_norm,
    }
    if name in made:
        return made[name]()
    raise AttributeError(name)
