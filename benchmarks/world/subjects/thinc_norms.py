"""thinc's layer LayerNorm, whose eps is always 1e-8."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

api: Any = import_module("thinc.api")
Array = NDArray[Any]


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Run a new layer; it has no eps."""
    del eps
    layer = api.LayerNorm(nI=x.shape[-1])
    layer.initialize()
    layer.set_param("G", gamma)
    layer.set_param("b", beta)
    y, backprop = layer(x, is_train=True)
    return y, (layer, backprop)


def backward(dy: Array, saved: Any) -> tuple[Array, Array, Array]:
    """Return dx, and the gradients that the layer adds to zeros."""
    layer, backprop = saved
    for name in ("G", "b"):
        layer.set_grad(name, np.zeros_like(layer.get_param(name)))
    dx = backprop(dy)
    return dx, layer.get_grad("G"), layer.get_grad("b")


# Parameters of thinc's layers are float32.
layer_norm = tv.Subject(
    forward, backward, name="thinc", dtypes=["float32"], operation="layer_norm,eps=1e-8"
)
