"""How fast the norms are on this machine: the operation, two textbook forms, a copy."""

from truenorm.bench.measuring import DEFAULT_ROUNDS, DEFAULT_SHAPES, measure, shape_of
from truenorm.bench.report import Figure, Report

__all__ = ["DEFAULT_ROUNDS", "DEFAULT_SHAPES", "Figure", "Report", "measure", "shape_of"]
