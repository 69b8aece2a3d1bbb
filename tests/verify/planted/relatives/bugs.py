"""Planted bugs of norms as kernels ship them: recipes, residuals, gains and types of their own."""

from truenorm.verify.operations import norm
from verify.planted.entry import PlantedBug
from verify.planted.relatives.kernel import Relative, relative


class Early(Relative):
    """xhat is rounded before it is multiplied."""

    recipe = "early"


RELATIVES = [
    PlantedBug(
        relative(
            Early(), "early, where late is claimed", ["bfloat16"], norm("rms_norm"), recipe="late"
        ),
        {"y": "stable"},
        "",
    ),
]
