"""tract 0.23.9: LogSoftmax is the logarithm of a softmax, which underflows to 0."""

import numpy as np
import onnx
import onnx.helper as h
import tract

info = [h.make_tensor_value_info(name, 1, ["r", "d"]) for name in "xy"]
graph = h.make_graph([h.make_node("LogSoftmax", ["x"], ["y"], axis=-1)], "g", info[:1], info[1:])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
onnx.save(model, "log_softmax.onnx")
run = tract.onnx().load("log_softmax.onnx").into_model().into_runnable().run
for distance in (50, 100, 104, 200):
    y = run([np.array([[0, -distance]], "f4")])[0].to_numpy()[0, 1]
    print(f"log-softmax of 0 and -{distance}: {y}, exact -{distance} to 21 digits")
assert np.isinf(y), "not reproduced"
