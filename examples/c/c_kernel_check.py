"""The kernels of this folder as subjects: ``truenorm verify c_kernel_check.py:subject``."""

from pathlib import Path

import truenorm.verify as tv

HERE = Path(__file__).resolve().parent

subject = tv.Subject(
    command=[str(HERE / "answer")], name="naive C kernel", dtypes=["float32"], seconds=10
)
stable = tv.Subject(
    command=[str(HERE / "answer_stable")],
    name="stable C kernel",
    dtypes=["float32"],
    seconds=10,
)
rms_norm = tv.Subject(
    command=[str(HERE / "answer_rms_norm")],
    name="RMSNorm in C",
    dtypes=["float32"],
    seconds=10,
    operation=tv.RMS_NORM,
)
