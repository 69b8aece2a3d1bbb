"""Planted bugs of norms as kernels ship them: recipes, residuals, gains and types of their own."""

from verify.planted.relatives.layout_bugs import LAYOUTS
from verify.planted.relatives.parameter_bugs import PARAMETERS
from verify.planted.relatives.recipe_bugs import OTHER_NORMS, RECIPES
from verify.planted.relatives.residual_bugs import RESIDUALS
from verify.planted.relatives.type_bugs import TYPES

__all__ = ["RELATIVES"]

RELATIVES = [*RECIPES, *OTHER_NORMS, *RESIDUALS, *PARAMETERS, *TYPES, *LAYOUTS]
