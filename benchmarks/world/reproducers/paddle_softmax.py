"""paddlepaddle 3.3.1, CPU: no element of a softmax is below exp(-64)."""

import math

import numpy as np
import paddle

paddle.set_device("cpu")
for distance in (50, 70, 80, 1000, math.inf):
    x = np.array([[0, -distance]], "f4")
    y = float(paddle.nn.functional.softmax(paddle.to_tensor(x), -1).numpy()[0, 1])
    exact = math.exp(-distance) / (1 + math.exp(-distance))
    print(f"softmax of 0 and {-distance:g}: {y:.4g}, exact {exact:.4g}")
assert y > 0, "not reproduced"
