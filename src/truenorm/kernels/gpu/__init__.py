"""GPU kernels: one source in C, compiled and launched by OpenCL or CUDA."""
