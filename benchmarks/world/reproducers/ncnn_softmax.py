"""ncnn 1.0.20261020: the softmax of a row with NaN is finite."""

import math
import tempfile
from pathlib import Path

import ncnn
import numpy as np

folder = tempfile.mkdtemp()
parameters, weights = Path(folder, "net.param"), Path(folder, "net.bin")
parameters.write_text("7767517\n2 2\nInput in0 0 1 in0\nSoftmax s 1 1 in0 out0 0=1 1=1\n")
weights.write_bytes(b"")
net = ncnn.Net()
net.load_param(str(parameters))
net.load_model(str(weights))
for row in ([0, 1, 2, 3], [math.nan, 1, 2, 3], [1, 1, 1, math.nan], [math.inf, 1, 2, 3]):
    extractor = net.create_extractor()
    extractor.input("in0", ncnn.Mat(np.array([row], "f4")).clone())
    y = np.array(extractor.extract("out0")[1]).ravel()
    expected = "finite" if row[0] == 0 else "NaN everywhere"
    print(f"softmax of {row}: {y.tolist()}, expected {expected}")
assert np.isfinite(y).all(), "not reproduced"
