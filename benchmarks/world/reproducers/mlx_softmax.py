"""mlx 0.32.4 on a CPU: softmax adds up rows of 16-bit types one by one in their type."""

from fractions import Fraction

import mlx.core as mx

mx.set_default_device(mx.cpu)
for size in (256, 1024, 16384, 131072):
    exact = Fraction(1, size)  # of equal elements
    for dtype in (mx.bfloat16, mx.float16):
        y = mx.softmax(mx.zeros((1, size), dtype=dtype), axis=-1)
        times = Fraction(float(y[0, 0].astype(mx.float32))) / exact
        print(f"D = {size}, {dtype}: y = {float(times):g} times the exact 1/{size}")
assert times > 60, "not reproduced"
