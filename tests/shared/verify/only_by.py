"""For each guard a subject that no other guard sees; reproducers load it from this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from shared.verify.planted.registry import PLANTED

ONLY_BY = {
    "unsupported": "eps from 1e-3 on refused",
    "raised": "an error at D = 1",
    "result": "complex numbers at D = 1",
    "shape": "dgamma without the sum over one batch axis",
    "type": "float64 returned for float32",
    "ordinary": "last partial block of 1024 dropped",
    "finite": "negative variance of a constant row",
    "growth": "float32 mean only",
    "recipe": "rms_norm: early, where late is claimed",
    "floor": "rms_norm,quant=e4m3fn,scale=per-token: two least scales",
    "biased": "add_rms_norm: the returned sum cut off",
    "special": "NaN swallowed",
    "subnormal": "subnormal inputs flushed",
    "repeat": "y by fused products in every second run",
    "sums": "dgamma by rows in random order",
    "history": "blocks by earlier rows",
    "position": "a row depending on its place in a block",
    "batch": "a row depending on its batch",
    "padding": "a row depending on zeros beside it",
    "idle": "dgamma cut by the number of rows",
    "layout": "dy read as contiguous",
    "large": "elements beyond 2^24 left out",
    "inputs": "in-place damage to x",
    "overwritten": "y in a buffer that is used again",
    "stale": "gradients of a stale forward pass",
    "spent": "backward spends what was saved",
}
"""The name of the bug."""
OF_STATE = {
    "workspace": "a workspace not cleared",
    "statistics": "statistics of an earlier call",
    "address": "statistics of an address",
    "accumulator": "dgamma not cleared",
    "packed": "gamma cached by width",
}
"""Bugs of state that is kept between calls."""
globals().update({key: PLANTED[name].subject for key, name in (ONLY_BY | OF_STATE).items()})
