"""Run recorded cases on a GPU of Modal. This script was not run: it needs an account.

truenorm record norm-cases --operation rms_norm --dtype bfloat16
modal run modal_run.py
truenorm judge norm-cases
"""

import io
import subprocess
import sys
import tarfile

import modal  # type: ignore[import-not-found]

KERNEL = "rms_norm.py"
FOLDER = "norm-cases"
IMAGE = (
    modal.Image.debian_slim(python_version="3.12")
    .pip_install("torch")
    .add_local_dir(FOLDER, f"/root/{FOLDER}")
    .add_local_file(KERNEL, f"/root/{KERNEL}")
)
app = modal.App("truenorm", image=IMAGE)


@app.function(gpu="L4", timeout=1800)  # type: ignore[untyped-decorator]
def run(target: str) -> bytes:
    """Run the cases, and return the results as an archive."""
    command = [sys.executable, f"{FOLDER}/runner.py", target, FOLDER, "--device", "cuda"]
    subprocess.run(command, cwd="/root", check=True)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as files:
        files.add(f"/root/{FOLDER}/results", "results")
    return archive.getvalue()


@app.local_entrypoint()  # type: ignore[untyped-decorator]
def main(name: str = "rms_norm") -> None:
    """Store the results in the folder of the recording."""
    archive = io.BytesIO(run.remote(f"{KERNEL}:{name}"))
    with tarfile.open(fileobj=archive) as files:
        files.extractall(FOLDER, filter="data")
