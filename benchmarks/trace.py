"""``python -m benchmarks.trace [CHECKOUT]``: the way of a subject from `verify` to its kernel.

A call of a function of the package is a step of the way if it gets or returns the subject: the
`Subject`, its function, its target such as ``check.py:subject``, or an object that has one of
them. Questions to the subject itself, such as its outputs, are no steps. The way ends with the
first call of the kernel on a case. A subject with a process of its own has a way in two parts: in
the process of the judge, then in its own process.

``files`` is the number of files of the package on the way. ``returns`` is how often the way comes
back to a file that it has left: a reader of the code opens the file again as often.
``--show`` prints the way, with the functions in each file.
"""
# A command prints its result.

import argparse
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import groupby
from pathlib import Path
from types import FrameType, FunctionType, MethodType
from typing import Any

FILE, KERNEL, END = "check.py", "kernel", "called"
CHECK = f"""
import truenorm.verify as tv

def {KERNEL}(x, gamma, beta, eps):
    return x

subject = tv.Subject({KERNEL}, dtypes=["float32"])
"""
TARGETS = f"{FILE}:subject", f"{FILE}:{KERNEL}"
OPERATION = ["--operation", "layer_norm"]
WAYS = {
    "tv.verify(subject)": ["-c", "import check; check.tv.verify(check.subject)"],
    f"truenorm verify {TARGETS[0]}": ["-m", "truenorm", "verify", TARGETS[0]],
    f"truenorm verify {TARGETS[1]}": ["-m", "truenorm", "verify", TARGETS[1], *OPERATION],
}
DESCRIPTOR = ("__get__", "__set__")  # of an attribute of the subject
DEPTH = 4
"""How deep a subject is looked for: in a method of a runner that has a process of the subject."""


class Tracer:
    """Notes the files through which the subject passes in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.steps, self.ended = folder, set[int](), folder / END
        self.files = folder / f"{time.time_ns()}.way"
        self.without: FrameType | None = None

    def note(self, frame: FrameType, event: str, value: Any) -> None:
        """Note the files of a step: that of the caller, and that of the function.

        A function that is called without the subject has none to pass on, unless it executes the
        file of the subject: the calls below it are left out, which would take most of the time.
        """
        if self.without is not None:
            ends = event == "return" and frame is self.without
            if not ends and not frame.f_code.co_filename.endswith(FILE):
                return
            self.without = None
        if event == "call" and is_kernel(frame):
            self.ended.touch()
        elif event == "call" and is_of_package(frame):
            if is_step(frame):
                self.steps.add(id(frame))
                self.append(caller(frame), frame)
            elif caller(frame) is not None and not any(map(holds, frame.f_locals.values())):
                self.without = frame
        elif event == "return" and is_of_package(frame):
            if id(frame) in self.steps or holds(value):
                self.append(frame, caller(frame))
            self.steps.discard(id(frame))

    def append(self, *frames: FrameType | None) -> None:
        """Append the files of functions that have the subject, up to the call of the kernel."""
        if not self.ended.exists():
            with self.files.open("a", encoding="utf-8") as file:
                codes = [each.f_code for each in frames if each]
                file.writelines(f"{code.co_filename}\t{code.co_qualname}\n" for code in codes)


def is_kernel(frame: FrameType) -> bool:
    """Return True for a call of the kernel on a case; a function is tried with ones before."""
    code = frame.f_code
    is_named = code.co_name == KERNEL and code.co_filename.endswith(FILE)
    return is_named and frame.f_locals["x"].std() > 0


def is_of_package(frame: FrameType) -> bool:
    """Return True for a function of the package; a module is no function."""
    return "/truenorm/" in frame.f_code.co_filename and frame.f_code.co_name != "<module>"


def caller(frame: FrameType) -> FrameType | None:
    """Return the function of the package that called a function, if it has the subject."""
    above = frame.f_back
    while above is not None and not is_of_package(above):
        above = above.f_back
    return above if above is not None and any(map(holds, above.f_locals.values())) else None


def is_step(frame: FrameType) -> bool:
    """Return True if a function gets the subject, and is not a question to the subject itself."""
    is_question = frame.f_code.co_name in DESCRIPTOR or is_subject(frame.f_locals.get("self"))
    return not is_question and any(map(holds, frame.f_locals.values()))


def is_subject(value: Any) -> bool:
    """Return True for a subject, its target or its function."""
    if isinstance(value, str):
        return value.endswith(TARGETS)
    if isinstance(value, FunctionType):
        return value.__name__ == KERNEL
    return any(each.__name__ == "Subject" for each in type(value).__mro__)


def holds(value: Any, depth: int = DEPTH) -> bool:
    """Return True for a subject, its target, or an object that has one of them."""
    if is_subject(value):
        return True
    if isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, partial):
        parts = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, MethodType):
        parts = [value.__self__]
    elif type(value).__module__.startswith("truenorm") and not isinstance(value, type):
        parts = list(getattr(value, "__dict__", {}).values())
    else:
        return False
    return depth > 0 and len(parts) < 100 and any(holds(part, depth - 1) for part in parts)


def way(command: list[str], root: Path) -> list[tuple[str, list[str]]]:
    """Return the files through which the subject of a command passes, each with its functions."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / FILE).write_text(CHECK, encoding="utf-8")
        (folder / "tracing.py").write_bytes(Path(__file__).read_bytes())
        # Python imports this module when a process starts.
        (folder / "sitecustomize.py").write_text(
            "import pathlib, sys, tracing\n"
            f"sys.setprofile(tracing.Tracer(pathlib.Path({name!r})).note)\n",
            encoding="utf-8",
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([name, str(root / "src")])}
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=name, stdout=subprocess.DEVNULL
        )
        while process.poll() is None and not (folder / END).exists():
            time.sleep(0.1)
        process.terminate()
        process.wait()
        if not (folder / END).exists():
            raise RuntimeError(f"expected a call of the kernel by {command}, got none")
        parts = [each.read_text(encoding="utf-8") for each in sorted(folder.glob("*.way"))]
    steps = [line.split("\t") for part in parts for line in part.splitlines()]
    grouped = groupby(steps, key=lambda step: step[0].rpartition("/truenorm/")[2])
    return [(file, list(dict.fromkeys(name for _, name in each))) for file, each in grouped]


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    described = argparse.ArgumentParser(prog="python -m benchmarks.trace", description=__doc__)
    described.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[1])
    described.add_argument("--show", action="store_true", help="print the files in their order")
    arguments = described.parse_args(argv)
    print(f"{'files':>8s}{'returns':>9s}")
    for name, command in WAYS.items():
        steps = way(command, arguments.checkout.resolve())
        files = {file for file, _ in steps}
        print(f"{len(files):8d}{len(steps) - len(files):9d}  {name}")
        if arguments.show:
            print("\n".join(f"{'':19s}{file}: {', '.join(names)}" for file, names in steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
