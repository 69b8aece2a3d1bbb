"""References in PyTorch that packages of GPU kernels ship for their own tests."""

from importlib import import_module

import truenorm.verify as tv

quack = tv.torch_subject(
    # By the name of its module: the package has a function that is called the same.
    import_module("quack.rmsnorm").rmsnorm_ref,
    operation="rms_norm",
    dtypes=["bfloat16", "float16"],
    name="quack.rmsnorm.rmsnorm_ref",
)
