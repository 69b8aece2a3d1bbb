"""Norms on TensorFlow, with gradients by its tape: those of Keras, and of Sonnet."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import truenorm.verify as tv
from benchmarks.world.subjects.arguments import gradients, split
from benchmarks.world.subjects.onnx_node import Array

tf: Any = import_module("tensorflow")
keras: Any = import_module("keras")


def subject(function: Callable[..., Any], name: str, operation: str) -> tv.Subject:
    """Return a subject that calls a function, and differentiates it."""

    def forward(*arguments: Any) -> tuple[Array, Any]:
        arrays, rest = split(arguments)
        inputs = [tf.constant(each) for each in arrays]
        with tf.GradientTape(persistent=True) as tape:
            for each in inputs:
                tape.watch(each)
            y = function(*inputs, *rest)
        return np.asarray(y), (tape, y, inputs)

    def backward(dy: Array, saved: Any) -> Any:
        tape, y, inputs = saved
        tensors = tape.gradient(y, inputs, output_gradients=tf.constant(dy))
        return gradients(np.asarray(each) for each in tensors)

    return tv.Subject(
        forward, backward, name=name, operation=operation, dtypes=["float32", "bfloat16"]
    )


def _layer_norm(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    return keras.ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=eps)


def _rms_norm(x: Any, gamma: Any, eps: float) -> Any:
    return keras.ops.rms_normalization(x, gamma, axis=-1, epsilon=eps)


layer_norm = subject(_layer_norm, "keras.ops.layer_normalization on TensorFlow", "layer_norm")
rms_norm = subject(_rms_norm, "keras.ops.rms_normalization on TensorFlow", "rms_norm")
