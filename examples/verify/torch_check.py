"""Layer norm of PyTorch: ``truenorm verify torch_check.py``; it needs PyTorch.

Replace it by your kernel; `triton_check.py` has one that writes to `out`.
"""

import torch  # type: ignore[import-not-found]

import truenorm.verify as tv

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

subject = tv.torch_subject(
    torch.nn.functional.layer_norm,
    operation="layer_norm",
    device=DEVICE,
    name=f"PyTorch {torch.__version__}, {DEVICE}",
    dtypes=["float32", "float16", "bfloat16"],
)
