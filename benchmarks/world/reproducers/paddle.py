"""paddlepaddle 3.3.1 on a CPU: gradients of the parameters are added row by row in float32."""

from fractions import Fraction

import numpy as np
import paddle

paddle.set_device("cpu")
weight, bias = paddle.ones([4]), paddle.zeros([4])
bias.stop_gradient = False
for rows in (1000, 131072, 2**21):
    y = paddle.nn.functional.layer_norm(paddle.randn([rows, 4]), [4], weight, bias, 1e-5)
    dy = np.full((rows, 4), 0.1, np.float32)
    (dbias,) = paddle.grad([y], [bias], [paddle.to_tensor(dy)])
    exact = rows * Fraction(float(dy[0, 0]))
    error = abs(Fraction(float(dbias[0])) / exact - 1)
    print(
        f"{rows} rows: dbias {float(dbias[0]):.8g}, exact {float(exact):.8g}, {float(error):.2g}"
    )
assert error > 1e-3, "not reproduced"
