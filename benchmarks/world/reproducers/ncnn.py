"""ncnn 1.0.20261020: the error of RMSNorm and LayerNorm grows with the row; NaN spreads."""

import math
import tempfile
from fractions import Fraction
from pathlib import Path

import ncnn
import numpy as np


def rms_norm(x):
    """Run a network of one layer."""
    size, net = x.shape[1], ncnn.Net()
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder, name)) for name in ("a.param", "a.bin")]
        text = f"7767517\n2 2\nInput in0 0 1 in0\nRMSNorm norm 1 1 in0 out0 0={size} 1=1e-6 2=1\n"
        Path(files[0]).write_text(text)
        Path(files[1]).write_bytes(np.ones(size, "f4").tobytes())
        net.load_param(files[0])
        net.load_model(files[1])
    extractor = net.create_extractor()
    extractor.input("in0", ncnn.Mat(x).clone())
    return np.array(extractor.extract("out0")[1]).reshape(x.shape)


for size in (1024, 16384, 262144, 2**24):
    x = np.full((1, size), 0.7, "f4")
    value = Fraction(float(x[0, 0]))
    exact = float(value) / math.sqrt(value**2 + Fraction(1e-6))
    error = abs(float(rms_norm(x)[0, 0]) - exact)
    print(f"D = {size}: y is off by {error:.2g}")
x = np.ones((1, 8), "f4")
x[0, 3] = np.inf
print("a row of 1 and one infinity:", rms_norm(x)[0], "exact: 0, and NaN at the infinity")
assert error > 1e-5, "not reproduced"
