"""What layer norm and RMSNorm cost: FLOPs, bytes, memory, and the time that follows from them.

Three forms are counted, step by step: the textbook's, whose every operation goes through memory;
the same in blocks that stay in a cache; and one fused kernel a pass. docs/time-and-memory.md
tells what the numbers mean, and ``truenorm cost`` prints them.
"""

from truenorm.cost.model import (
    ITEMSIZES,
    Cost,
    Form,
    Keep,
    PassCost,
    Step,
    layer_norm_cost,
    rms_norm_cost,
)
from truenorm.cost.page import measure_bandwidth, measure_flops_rate

__all__ = [
    "ITEMSIZES",
    "Cost",
    "Form",
    "Keep",
    "PassCost",
    "Step",
    "layer_norm_cost",
    "measure_bandwidth",
    "measure_flops_rate",
    "rms_norm_cost",
]
