"""Tensors: kernels of PyTorch as subjects. `pytorch` alone imports the framework, when asked."""
