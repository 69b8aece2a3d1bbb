"""Call a kernel with recorded cases, where the kernel is. This file needs PyTorch, nothing else.

    python norm-cases/runner.py my_kernel.py:rms_norm norm-cases --device cuda

`truenorm record norm-cases` wrote the folder. Results go to norm-cases/results, which
`truenorm judge norm-cases` reads on any machine. The kernel runs in a child process, which is
started again after a crash or a hang. A run that was interrupted continues where it stopped.
"""

import argparse
import contextlib
import ctypes
import hashlib
import importlib.util
import inspect
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import zlib
from array import array
from pathlib import Path
from typing import Any

MAX_DEATHS, START_SECONDS, SHORT_ROW = 3, 120.0, 16
BROKEN = 70  # exit code of a child that failed itself
GAP, POISON = 77.0, (0xFF, 0x42)  # between strided rows; the bytes of free memory: NaN or numbers
ENDS = "; this ends the program that calls it: raise an Exception instead"
torch: Any = None  # imported in the child process only
Values = dict[str, Any]


class Log:
    """Lines of JSON in a file; the last one has the hash of all others and of the arrays."""

    def __init__(self, file: Path) -> None:
        self.file, self.arrays = file, file.with_name("arrays.bin")
        self.places, self.entries = dict[bytes, int](), list[Values]()
        self.stored = dict[Any, list[Any]]()
        file.touch()
        self.arrays.touch()
        for line in file.read_text(encoding="utf-8").split("\n"):
            with contextlib.suppress(ValueError):  # killed while it wrote
                self.entries.append(json.loads(line))

    def write(self, **entry: Any) -> Values:
        """Append a line, and return it."""
        with self.file.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n{json.dumps(entry)}")
        self.entries.append(entry)
        return entry

    def end(self) -> None:
        """Append the last line."""
        files = (self.file, self.arrays)
        self.write(end=[hashlib.sha256(file.read_bytes()).hexdigest() for file in files])

    def store(self, kind: str, shape: list[int], data: bytes) -> list[Any]:
        """Append an array to a file, but no row twice; return where it is."""
        key = kind, *shape, hashlib.sha256(data).digest()
        if key in self.stored:  # most calls have the results of another
            return self.stored[key]
        width = len(data) // shape[0] if len(shape) > 1 and shape[0] else 0
        width = width if width > SHORT_ROW else max(len(data), 1)
        with self.arrays.open("ab") as file:
            rows = [self.place(data[k : k + width], file) for k in range(0, len(data), width)]
            index = zlib.compress(array("q", rows).tobytes())
            place = [kind, shape, width, self.place(index, file), len(index)]
        return self.stored.setdefault(key, place)

    def place(self, content: bytes, file: Any) -> int:
        """Return where some bytes are in a file, and write them if they are not yet there."""
        key = hashlib.sha256(content).digest()
        if key not in self.places:
            self.places[key] = file.tell()
            file.write(content)
        return self.places[key]


WATCHER = """cd /; exec 3<&0 >/dev/null 2>&1
{ while read -r line; do groups=$line; done; kill -s KILL -- $groups; } <&3 3<&- &"""


class Groups:
    """Process groups that end with this process, however it ends.

    A shell in the background reads their numbers from a pipe. When the pipe ends, it kills those
    of the last line: also if the process that has the other end was killed.
    """

    def __init__(self) -> None:
        self.pipe = -1
        self.forget()

    def forget(self) -> None:
        """Start without groups; those of a process that forked this one end with that one."""
        if self.pipe >= 0:
            os.close(self.pipe)
        self.lock, self.pipe, self.alive = threading.Lock(), -1, set[int]()

    def watch(self) -> None:
        """Start the shell, unless it runs: before a child that must not outlive this process."""
        with self.lock:
            if self.pipe < 0 and os.name != "nt":
                reading, self.pipe = os.pipe()
                with os.fdopen(reading) as file, contextlib.suppress(OSError):  # there is none
                    command = ["/bin/sh", "-c", WATCHER]
                    subprocess.run(command, stdin=file, start_new_session=True)

    def note(self, group: int, *, alive: bool) -> None:
        """Add a process group, or remove one that has ended."""
        with self.lock, contextlib.suppress(OSError):  # there is no shell
            (self.alive.add if alive else self.alive.discard)(group)
            os.write(self.pipe, " ".join(f"-{each}" for each in self.alive).encode() + b"\n")


GROUPS = Groups()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=GROUPS.forget)


def start_group(command: Any, **options: Any) -> "subprocess.Popen[Any]":
    """Start a process in a group of its own, which ends with this process."""
    GROUPS.watch()
    child: subprocess.Popen[Any] = subprocess.Popen(command, start_new_session=True, **options)
    GROUPS.note(child.pid, alive=True)
    return child


def kill_group(child: Any) -> None:
    """Kill all processes of the group that a child leads, even if it has ended itself."""
    if os.name == "nt":
        child.kill()
        return
    # All may have ended; macOS raises PermissionError for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    GROUPS.note(child.pid, alive=False)


def start_child() -> Any:
    """Start a process that makes the calls."""
    command = [sys.executable, "-W", "ignore", *sys.argv, "--child"]
    return start_group(command, stdin=subprocess.DEVNULL)


def supervise(args: Any, path: Path, start: Any = start_child) -> int:
    """Start children until all calls are made. A crash or a hang is the result of its call."""
    while True:
        before, first = len(Log(path).entries), path.stat().st_size
        child, since, size, hung = start(), time.monotonic(), first, False
        while child.poll() is None:
            time.sleep(0.02)
            if size != (size := path.stat().st_size):
                since = time.monotonic()
            hung = time.monotonic() - since > args.seconds + START_SECONDS * (size == first)
            if hung:
                kill_group(child)
        GROUPS.note(child.pid, alive=False)
        log, code = Log(path), child.returncode
        last = log.entries[-1] if log.entries else {}
        if "end" in last and code == 0:
            return 0
        if "begin" not in last or len(log.entries) == before or code == BROKEN:
            return code or 2  # it could not be loaded, and said why
        log.write(step=last["begin"], failure="died", exit_code=code, hung=hung, deaths=1)
        if sum("deaths" in entry for entry in log.entries) >= MAX_DEATHS:
            log.end()
            return 0


def describe(error: BaseException) -> str:
    """Return the type of an exception, and its message if it has one."""
    try:
        return f"{type(error).__name__}: {str(error)[:2000]}".removesuffix(": ")
    except Exception:
        return f"{type(error).__name__}: (it cannot be printed)"


def read(tensor: Any) -> Any:
    """Return type, shape and bytes of a tensor, or None."""
    if tensor is None:
        return None
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a result is of type {type(tensor).__name__}, and no tensor")
    host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    content = ctypes.string_at(host.data_ptr(), host.numel() * host.element_size())
    return str(host.dtype).removeprefix("torch."), [*host.shape], content


def load_file(place: str) -> Any:
    """Execute a file, which may have the name of another module and import files of its folder."""
    sys.path.insert(0, str(Path(place).resolve().parent))
    name = Path(place).stem
    name = f"{name}_" if name in sys.modules else name
    spec: Any = importlib.util.spec_from_file_location(name, place)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Caller:
    """Makes the passes of calls; subclasses load inputs, call a kernel and keep its results."""

    given: Values  # the inputs of the call
    note: Values
    load: Any  # returns inputs of a call; with `reuse`, in the memory of earlier calls

    def forward(self, values: Values) -> tuple[Values, Any]:
        """Return the results by name, and what backward needs."""
        raise NotImplementedError

    def backward(self, values: Values, saved: Any) -> Values:
        """Return the gradients by name, or nothing if there is no backward pass."""
        raise NotImplementedError

    def keep(self, results: Values, k: int, number: int) -> None:
        """Keep results of the passes on inputs k, in the repetition of that number."""
        raise NotImplementedError

    def pause(self, seconds: float) -> None:
        """Wait for a thread of the kernel that writes to results."""
        time.sleep(seconds)

    def repeat(self, step: Values) -> None:
        """Make the passes of a call until bits differ, or until there were enough of them."""
        times, few, *limits = step["times"]
        busy = time.process_time()
        for repetition in range(times):
            self.passes(step, repetition)
            late = time.process_time() - busy > limits[repetition > few]
            if late or self.note["holds"]:
                break

    def passes(self, step: Values, number: int) -> None:
        """Make the passes of a call once, and keep the results."""
        values = {0: self.load(step)}
        self.given |= {n: values[0][n] for n, each in step["tensors"].items() if each is not None}
        results, saved = dict[int, Values](), dict[int, Any]()
        for name, k in step["passes"]:
            if k not in values and name != "keep":
                other = self.load(step["others"][k - 1], reuse=name == "try")
                values[k] = {**values[0], **other}
            if name == "forward":
                results[k], saved[k] = self.forward(values[k])
            elif name == "backward":
                results[k] |= self.backward(values[k], saved[k])
            elif name == "keep":
                self.keep(results[k], k, number)
                results[k] = {}
            elif name == "pause":
                self.pause(step["pause"])
            elif name == "try":
                with contextlib.suppress(Exception):  # it may not support this width
                    self.backward(values[k], self.forward(values[k])[1])
                self.load(step)  # where inputs of the other call were
            elif results[0]:  # "again": a second backward pass
                try:
                    results[0] = self.backward(values[k], saved[0])
                except Exception as error:
                    self.note["left_out"] = f"a second backward pass is refused: {describe(error)}"
                    return


class Runner(Caller):
    """Calls a kernel as a recording says."""

    def __init__(self, args: Any, manifest: Values) -> None:
        self.manifest = manifest
        place, _, name = args.target.rpartition(":")
        module = load_file(place) if place.endswith(".py") else importlib.import_module(place)
        self.function, self.form = getattr(module, name), args.form
        self.explicit = getattr(module, args.backward) if args.backward else None
        self.arguments = self.match(args.signature)
        if self.form == "out" and "sum" not in [role for _, role in self.arguments]:
            self.form = "out over residual"
        self.device, self.turn, self.autograd = torch.device(args.device), 0, False
        self.waits = args.device != "cpu"  # a CPU has no streams
        self.pool, self.given, self.kept, self.note = [dict[Any, Any]() for _ in range(4)]

    def open(self, args: Any, log: Log) -> None:
        """Read the cases, and begin a log or continue the one of an equal run."""
        self.content, self.log = (args.folder / "cases.bin").read_bytes(), log
        self.patience = min(self.manifest["patience"], args.seconds)
        if args.form in ("functional", "module") and not args.backward and not args.forward_only:
            self.autograd = self.is_differentiable()
        header = {name: value for name, value in vars(args).items() if name != "folder"}
        header |= {"question": self.manifest["question"], "torch": torch.__version__}
        backward, python = bool(self.autograd or args.backward), sys.version.split()[0]
        header |= {"backward": backward, "python": python}
        if args.device.startswith("cuda"):
            header["gpu"] = torch.cuda.get_device_name(args.device)
        if (log.entries or [log.write(**header)])[0] != header:
            sys.exit(f"{log.file.parent} has results of another run: remove that folder")

    def match(self, signature: str) -> list[tuple[str, str]]:
        """Return the name and the role of each argument; one without a name is positional."""
        roles, wanted = self.manifest["roles"], self.manifest["wanted"][self.form]
        if signature:
            return [("", roles[name.strip().lower()]) for name in signature.split(",")]
        try:
            known = [*inspect.signature(self.function).parameters.values()]
        except (TypeError, ValueError):  # builtin, or an operator of torch.ops
            known = []
        found = [(each, roles.get(each.name.lower(), "")) for each in known]
        has = {"size" if role == "shape" else role for _, role in found}
        if not {*wanted} <= has:
            return [("", role) for role in wanted]
        useful = [*wanted, *self.manifest["optional"]]
        return [
            ("" if each.kind is each.POSITIONAL_ONLY else each.name, role)
            for each, role in found
            if role in useful or (each.default is each.empty and each.kind not in (2, 4))
        ]

    def is_differentiable(self) -> bool:
        """Call the kernel with ones, and return True if autograd differentiates the result."""
        self.autograd = bool(self.manifest["gradients"])
        for ones in self.manifest["ones"]:
            with contextlib.suppress(Exception):
                results, _ = self.forward(self.load(ones, reuse=False))
                return bool(next(iter(results.values())).requires_grad)
        return False

    def bits(self, entry: list[Any]) -> tuple[str, list[int], bytes]:
        """Return type, shape and bytes of an input; its rows are repeated as often as needed."""
        kind, shape, _, _, width, at, count = entry
        places = memoryview(self.content)[at : at + 8 * count].cast("q")
        rows = b"".join(self.content[place : place + width] for place in places)
        size = math.prod(shape) * getattr(torch, kind).itemsize
        return kind, shape, (rows * -(-size // max(len(rows), 1)))[:size]

    def tensor(self, name: str, entry: list[Any]) -> Any:
        """Return an input on the device; one with a name is in the memory of an earlier call."""
        (kind, shape, data), (strides, offset) = self.bits(entry), entry[2:4]
        size = max(0, offset + 1 + sum((n - 1) * step for n, step in zip(shape, strides)))
        dtype, key = getattr(torch, kind), (name, size, kind)
        memory = self.pool.get(key) if name else None
        if memory is None:
            memory = torch.empty(size, dtype=dtype, device=self.device)
            self.pool |= {key: memory} if name else {}
        host = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        if size > host.numel():
            memory.fill_(GAP)
        return memory.as_strided(shape, strides, offset).copy_(host.reshape(shape))

    def load(self, entry: Values, *, reuse: bool = True) -> Values:
        """Return the arguments of a call by role."""
        inputs = entry["tensors"].items()
        tensors = {name: each and self.tensor(name * reuse, each) for name, each in inputs}
        return {**entry["values"], **tensors}

    def call(self, values: Values) -> Any:
        """Call the function with the value of each role, or None."""
        places = [values.get(role) for name, role in self.arguments if not name]
        named = {name: values.get(role) for name, role in self.arguments if name}
        return self.function(*places, **named)

    def call_module(self, module: Any, values: Values) -> Any:
        """Call a module whose parameters are replaced by those of the case."""
        roles, data = self.manifest["roles"], [values[name] for name in self.manifest["data"]]
        paths = [path for path, _ in module.named_parameters()]
        known = {roles.get(path.rpartition(".")[2].lower()): path for path in reversed(paths)}
        if missing := [name for name in self.manifest["parameters"] if name not in known]:
            raise ValueError(f"the module has no parameter for {missing[0]}; it has {paths}")
        replaced = {known[name]: values[name] for name in self.manifest["parameters"]}
        return torch.func.functional_call(module.to(self.device), replaced, tuple(data))

    def forward(self, values: Values) -> tuple[Values, Any]:
        """Return the results by name, and what backward needs."""
        self.turn, outputs = self.turn + 1, self.manifest["outputs"]
        # Results that are not written must not hold those of earlier calls.
        fill, device = POISON[self.turn % 2], self.device
        free = [torch.full([n], fill, dtype=torch.uint8, device=device) for n in values["sizes"]]
        del free
        memory = values["written"].get(self.form, {}).items()
        written = {role: self.tensor("", pair[self.turn % 2]) for role, pair in memory}
        inputs = [values[name] for name in self.manifest["inputs"]]
        for each in inputs:
            if self.autograd and each is not None:
                each.requires_grad_()
        with torch.set_grad_enabled(self.autograd):
            returned = self.call({**values, **written})
            if self.form == "module":
                returned = self.call_module(returned, values)
        returned = [*returned] if isinstance(returned, (tuple, list)) else [returned]
        if written:
            own = [*written.values(), None]
            returned = own[:-1] + [each for each in returned if all(each is not y for y in own)]
        if len(returned) < (n := len(outputs)):
            raise TypeError(f"it returned {len(returned)} result, not {n}: {', '.join(outputs)}")
        return dict(zip(outputs, returned)), (returned, inputs)

    def backward(self, values: Values, saved: Any) -> Values:
        """Return the gradients by name, or nothing if there is no backward pass."""
        (returned, inputs), names = saved, self.manifest["gradients"]
        incoming = [values[name] for name in self.manifest["incoming"]]
        if self.explicit:
            with torch.no_grad():
                gradients = self.explicit(*incoming, *returned[len(self.manifest["outputs"]) :])
            gradients = [*gradients] if isinstance(gradients, (tuple, list)) else [gradients]
            if len(gradients) != len(names):
                text = f"{len(gradients)} results, not {', '.join(names[:-1])} and {names[-1]}"
                raise TypeError(f"backward returned {text}")
            return dict(zip(names, gradients))
        if not self.autograd:
            return {}
        pairs = [(y, dy.to(y.dtype)) for y, dy in zip(returned, incoming) if y.requires_grad]
        wanted, (ys, dys) = [x for x in inputs if x is not None], zip(*pairs)
        found = iter(torch.autograd.grad(ys, wanted, dys, True, allow_unused=True))
        return {n: None if each is None else next(found) for n, each in zip(names, inputs)}

    def keep(self, results: Values, k: int, number: int) -> None:
        """Read results; if nothing waits for a stream, they have other bits a second time."""
        results = {"later " * k + name: each for name, each in results.items()}
        bits = {name: read(each) for name, each in results.items()}
        if self.waits:
            getattr(torch, self.device.type).synchronize()
        given = {x.untyped_storage().data_ptr(): n for n, x in self.given.items() if x.numel()}
        for name, each in results.items():
            if self.waits and read(each) != bits[name]:
                text = f"returned {name} before it was computed: a stream is not waited for"
                self.note["failure"] = text
            if self.kept.setdefault(name, bits[name]) != bits[name]:
                self.note["holds"][name] = [str(number)]
            if each is not None and type(each) not in (torch.Tensor, torch.nn.Parameter):
                self.note["types"][name] = type(each).__name__
            if each is not None and (at := each.untyped_storage().data_ptr()) in given:
                self.note["shared"][name] = given[at]
        self.kept |= bits

    def make(self, number: int, step: Values) -> Values:
        """Make a call until bits differ, and return the line of the log."""
        self.log.write(begin=number)
        self.given, self.kept, start = {}, {}, time.perf_counter()
        self.note = {"failure": "", "left_out": "", "holds": {}, "types": {}, "shared": {}}
        try:
            self.repeat(step)
        except BaseException as error:
            text = f"raised {describe(error)}"
            self.note["failure"] = text if isinstance(error, Exception) else text + ENDS
        self.note["seconds"] = time.perf_counter() - start
        for name, each in self.given.items():
            if (now := read(each)) != self.bits(step["tensors"][name]):
                self.kept[f"given {name}"] = now
        arrays = {name: each and self.log.store(*each) for name, each in self.kept.items()}
        return self.log.write(step=number, arrays=arrays, **self.note)

    def work(self) -> None:
        """Make the calls that are not in the log; after a failure, no other one of its group."""
        if "end" in self.log.entries[-1]:
            return
        done = {entry["step"]: entry for entry in self.log.entries if "step" in entry}
        failed, fast, tried, first = set[int](), -1, False, dict[int, float]()
        for number, step in enumerate(self.manifest["calls"]):
            group, when = step["group"], step["when"]
            if group != fast if when == "fast" else group in failed or (when == "trial" and tried):
                continue
            record = done.get(number) or self.make(number, step)
            tried = tried or not record["failure"].startswith("raised ")
            if record["failure"]:
                failed.add(group)
                continue
            plain = first.setdefault(group, record["seconds"])
            estimate = plain + step["ratio"] * max(record["seconds"] - plain, 0.0)
            fast = group if step["ratio"] and estimate <= self.patience else fast
        self.log.end()


def prepare(arguments: list[str] | None = None) -> tuple[Any, Path]:
    """Return the options of the command line, and the path of the log."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("target", help="FILE.py:NAME or package.module:NAME")
    add("folder", type=Path, help="the folder of the recording")
    add("--device", default="cpu", help="such as cuda")
    add("--form", default="functional", choices=("functional", "out", "inplace", "module"))
    add("--signature", default="", help="its arguments in order, such as 'x, weight, eps'")
    add("--backward", default="", help="a function of dy and what forward returned")
    add("--forward-only", action="store_true", help="make no backward pass")
    add("--seconds", type=float, default=60.0, help="time limit of one call")
    add("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    (args.folder / "results").mkdir(exist_ok=True)
    return args, args.folder / "results" / "log.jsonl"


def import_torch() -> Any:
    """Import PyTorch for this file, and return it."""
    global torch
    torch = importlib.import_module("torch")
    with contextlib.suppress(ImportError, AttributeError):
        config: Any = importlib.import_module("torch._functorch.config")
        config.donated_buffer = False  # else compiled kernels refuse a second backward pass
    return torch


def run_calls(args: Any, path: Path) -> int:
    """Make the calls in this process, and return its exit code."""
    import_torch()
    try:
        manifest = json.loads((args.folder / "manifest.json").read_text(encoding="utf-8"))
        runner = Runner(args, manifest)
        runner.open(args, Log(path))
        runner.work()
    except Exception:  # not the kernel's: those are results
        traceback.print_exc()
        return BROKEN
    return 0


def main() -> int:
    """Run as the parent or as the child."""
    args, path = prepare()
    if not args.child:
        return supervise(args, path)
    code = run_calls(args, path)
    sys.stderr.flush()
    os._exit(code)  # threads of the kernel may never end


if __name__ == "__main__":
    sys.exit(main())
