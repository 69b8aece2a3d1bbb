"""opencv-python-headless 5.0.0.93: LogSoftmax is the logarithm of a softmax, which underflows."""

import cv2
import numpy as np
import onnx.helper as h

info = [h.make_tensor_value_info(name, 1, [1, 2]) for name in "xy"]
graph = h.make_graph([h.make_node("LogSoftmax", ["x"], ["y"], axis=-1)], "g", info[:1], info[1:])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
net = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
for distance in (50, 100, 104, 200):
    net.setInput(np.array([[0, -distance]], "f4"), "x")
    y = np.array(net.forward()).ravel()[1]
    print(f"log-softmax of 0 and -{distance}: {y}, exact -{distance} to 21 digits")
assert np.isinf(y), "not reproduced"
