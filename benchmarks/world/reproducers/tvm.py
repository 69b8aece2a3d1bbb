"""apache-tvm 0.27.0.post1, target llvm: rows of rms_norm and layer_norm are added one by one."""

import math
from fractions import Fraction

import numpy as np
import tvm
from tvm import relax

eps, device = 1e-6, tvm.cpu()
for size in (1024, 16384, 262144, 2**22):
    builder = relax.BlockBuilder()
    ends = [
        relax.Var("x", relax.TensorType([1, size], "float32")),
        relax.Var("w", relax.TensorType([size], "float32")),
    ]
    with builder.function("main", ends):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.rms_norm(*ends, axes=[-1], epsilon=eps))
        builder.emit_func_output(y)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), device)
    x = np.full((1, size), 0.7, "f4")
    inputs = [tvm.runtime.tensor(each, device) for each in (x, np.ones(size, "f4"))]
    value = Fraction(float(x[0, 0]))
    exact = float(value) / math.sqrt(value**2 + Fraction(eps))
    y = float(machine["main"](*inputs).numpy()[0, 0])
    print(f"D = {size}: y = {y:.7f}, exact {exact:.7f}, off by {abs(y - exact):.2g}")
assert abs(y - exact) > 1e-3, "not reproduced"
