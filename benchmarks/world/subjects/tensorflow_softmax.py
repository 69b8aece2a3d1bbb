"""tf.nn: softmax, log_softmax and the cross-entropy of labels, with gradients by its tape."""

from typing import Any

from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.tensorflow_norms import subject, tf


def _cross_entropy(x: Any, label: Array) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(label, x)


softmax = subject(tf.nn.softmax, "tf.nn.softmax", "softmax")
log_softmax = subject(tf.nn.log_softmax, "tf.nn.log_softmax", "log_softmax")
cross_entropy = subject(_cross_entropy, "tf.nn cross-entropy", "cross_entropy")
