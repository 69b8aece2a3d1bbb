"""paddlepaddle 3.3.1, CPU: differences from the largest element are limited to -64."""

import math

import numpy as np
import paddle

paddle.set_device("cpu")
functional = paddle.nn.functional
for distance in (50, 70, 1000, math.inf):
    x = paddle.to_tensor(np.array([[0, -distance]], "f4"))
    y = float(functional.softmax(x, -1)[0, 1])
    exact = math.exp(-distance) / (1 + math.exp(-distance))
    logarithm = float(functional.log_softmax(x, -1)[0, 1])
    loss = float(functional.cross_entropy(x, paddle.to_tensor([1])))
    print(f"0 and -{distance:g}: softmax {y:.4g}, exact {exact:.4g};", end=" ")
    print(f"its logarithm {logarithm:g}, cross-entropy {loss:g}, exact {distance:g}")
assert y > 0, "not reproduced"
assert logarithm == -64, "not reproduced"
assert loss == 64, "not reproduced"
