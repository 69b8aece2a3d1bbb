"""mlx 0.32.4 on a CPU: sums along a row are added one by one in float32."""

import math
from fractions import Fraction

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
eps = 1e-6
for size in (1024, 16384, 262144, 2**24):
    x = np.full((1, size), 0.7, np.float32)
    value = Fraction(float(x[0, 0]))
    exact = float(value) / math.sqrt(value**2 + Fraction(eps))
    y = float(mx.fast.rms_norm(mx.array(x), mx.ones(size), eps)[0, 0])
    mean = float(mx.mean(mx.array(x), axis=-1)[0])
    print(f"D = {size}: rms_norm {y:.7f}, exact {exact:.7f}; mean {mean:.7f}, exact 0.7")
assert abs(y - exact) > 1e-3, "not reproduced"
