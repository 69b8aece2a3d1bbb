"""The backend "fused": kernels that Numba compiles."""
