"""Compile ahead what calls would compile when they first need it."""

from truenorm.warmup.report import Report, Step
from truenorm.warmup.warming import warm_up

__all__ = ["Report", "Step", "warm_up"]
