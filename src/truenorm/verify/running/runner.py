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
import platform
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

MAX_DEATHS, START_SECONDS, PAUSE_SECONDS, GAP = 3, 120.0, 0.1, 77.0
BROKEN = 70  # exit code of a child that failed itself
ENDS = "; this ends the program that calls it: raise an Exception instead"
torch: Any = None  # imported in the child process only
Values = dict[str, Any]


class Log:
    """Lines of JSON, each after a hash of itself and of all lines before it."""

    def __init__(self, path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):  # killed while it wrote
            os.truncate(path, path.stat().st_size - len(lines.pop()))
        self.path, self.entries = path, [json.loads(line[17:]) for line in lines]
        self.hash = lines[-1][:16].decode() if lines else ""

    def write(self, **entry: Any) -> None:
        """Append an entry."""
        text = json.dumps(entry)
        self.hash = hashlib.sha256((self.hash + text).encode()).hexdigest()[:16]
        self.entries.append(entry)
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{self.hash} {text}\n")


def start_child() -> Any:
    """Start a process that makes the calls."""
    return subprocess.Popen([sys.executable, *sys.argv, "--child"], stdin=subprocess.PIPE)


def supervise(args: Any, path: Path, start: Any = start_child) -> int:
    """Start children until all calls are made. A crash or a hang is the result of its call."""
    while True:
        before = len(Log(path).entries)
        first = size = path.stat().st_size if before else 0
        child = start()
        since, hung = time.monotonic(), False
        while child.poll() is None:
            time.sleep(0.02)
            now = path.stat().st_size if path.exists() else 0
            since, size = (time.monotonic(), now) if now != size else (since, size)
            if time.monotonic() - since > args.seconds + START_SECONDS * (size == first):
                hung = True
                child.kill()
        log, code = Log(path), child.returncode
        last = log.entries[-1] if log.entries else {}
        if "end" in last and code == 0:
            return 0
        if "begin" not in last or len(log.entries) == before or code == BROKEN:
            return code or 2  # it could not be loaded, and said why
        how = f"ended with exit code {code}"
        how = f"crashed: {signal.Signals(-code).name}" if code < 0 else how
        how = f"gave no answer within {args.seconds:g} s" if hung else how
        log.write(step=last["begin"], failure=how, deaths=1)
        if sum(entry.get("deaths", 0) for entry in log.entries) >= MAX_DEATHS:
            log.write(end=True)


def describe(error: BaseException | None) -> str:
    """Return the type of an exception, and its message if it has one."""
    try:
        message = f": {str(error)[:2000]}" if str(error) else ""
    except Exception:
        message = ": (it cannot be printed)"
    return type(error).__name__ + message


def on_host(tensor: Any) -> Any:
    """Return a contiguous copy of a tensor, or None."""
    if tensor is None:
        return None
    return tensor.detach().to("cpu", copy=True).resolve_conj().resolve_neg().contiguous()


def rows_of_bits(tensor: Any, rows: int) -> Any:
    """Return a contiguous tensor as rows of bytes, or of integers where that is possible."""
    if not tensor.numel():
        return torch.empty(0, 0, dtype=torch.uint8)
    table = tensor.reshape(rows, -1).view(torch.uint8)
    return table.view(torch.int64) if table.shape[1] % 8 == 0 else table


def same(one: Any, other: Any) -> bool:
    """Return True if two contiguous tensors have the same type, shape and bits."""
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return one is other
    return bool(torch.equal(rows_of_bits(one, 1), rows_of_bits(other, 1)))


def match(function: Any, wanted: list[str], names: Any, signature: str) -> list[tuple[str, str]]:
    """Return the name and the role of each argument; one without a name is positional."""
    roles = {name: role for role, known in names.items() for name in known}
    if signature:
        return [("", roles[name.strip().lower()]) for name in signature.split(",")]
    try:
        known = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # builtin, or an operator of torch.ops
        known = []
    found = [(each, roles.get(each.name.lower(), "")) for each in known if each.kind not in (2, 4)]
    if not {*wanted} <= {role for _, role in found}:
        return [("", role) for role in wanted]
    wanted = [*wanted, "shape", "size", "group", "sum"]
    used = [(each, role) for each, role in found if role in wanted or each.default is each.empty]
    return [("" if each.kind is each.POSITIONAL_ONLY else each.name, role) for each, role in used]


class Kernel:
    """A function or a module, called by the roles of its arguments."""

    def __init__(self, args: Any, manifest: Values) -> None:
        place, _, name = args.target.rpartition(":")
        if place.endswith(".py"):  # like a script, it can import files of its folder
            sys.path.insert(0, str(Path(place).resolve().parent))
            spec: Any = importlib.util.spec_from_file_location(Path(place).stem, place)
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        self.function, self.form, self.manifest = getattr(module, name), args.form, manifest
        self.explicit = getattr(module, args.backward) if args.backward else None
        self.device, self.turn, self.autograd = torch.device(args.device), 0, False
        self.written: Values = {}
        wanted = [*manifest["inputs"], "eps", *manifest["settings"]]
        written = ["out", *(name for name in manifest["outputs"][1:] if name != "sum")]
        wanted = {"out": [*written, *wanted], "module": ["eps"]}.get(self.form, wanted)
        self.arguments = match(self.function, wanted, manifest["names"], args.signature)
        if self.form == "module" and not {role for _, role in self.arguments} & {"shape", "size"}:
            self.arguments = [("", "size"), ("", "eps")]

    def call(self, values: Values) -> Any:
        """Call the function with the value of each role, or None."""
        places = [values.get(role) for name, role in self.arguments if not name]
        named = {name: values.get(role) for name, role in self.arguments if name}
        return self.function(*places, **named)

    def run(self, values: Values) -> tuple[list[Any], list[Any]]:
        """Return the results of forward, and further return values."""
        names, x = self.manifest["data"], values["x"]
        data = {name: values[name] for name in names}
        written, returned = [], None
        if self.form == "out":
            roles = {role for _, role in self.arguments}
            results: Values = {}
            for name, entry in self.written.items():
                role = "out" if not results else name
                in_place = name == "sum" and "sum" not in roles
                role = "residual" if in_place else role
                results[role] = strided_copy(values[role]) if in_place else self.empty(x, *entry)
            written = [*results.values()]
            returned = self.call({**values, **results})
        elif self.form == "inplace":
            data = {name: strided_copy(each) for name, each in data.items()}
            written = [*data.values()]
            returned = self.call({**values, **data})
        elif self.form == "module":
            module = self.call(values).to(self.device)
            for name in self.manifest["parameters"]:
                values[name] = self.set_parameter(module, name, values[name])
            returned = module(*data.values())
        else:
            returned = self.call(values)
        if written:
            known = returned is None or isinstance(returned, tuple)
            return written, [] if known or any(returned is each for each in written) else [
                returned
            ]
        returned = [*returned] if isinstance(returned, (tuple, list)) else [returned]
        if len(returned) < (count := len(self.manifest["outputs"])):
            outputs = ", ".join(self.manifest["outputs"])
            raise TypeError(f"it returned {len(returned)} result, not {count}: {outputs}")
        return returned[:count], returned[count:]

    def empty(self, x: Any, kind: str, last: int, by_rows: bool, zero: bool) -> Any:
        """Return a tensor for a result: floats are NaN, codes one of two by turns."""
        shape, dtype = (
            ([*x.shape[:-1]] if by_rows else []) + [last or x.shape[-1]],
            getattr(torch, kind),
        )
        if dtype.itemsize > 1:
            return torch.full(shape, 0.0 if zero else math.nan, dtype=dtype, device=x.device)
        fill = (0x2A, 0x7F)[self.turn % 2]
        return torch.full(shape, fill, dtype=torch.uint8, device=x.device).view(dtype)

    def set_parameter(self, module: Any, name: str, value: Any) -> Any:
        """Replace a parameter of a module by a tensor, and return the new parameter."""
        known = self.manifest["names"][name]
        paths = [path for path, _ in module.named_parameters()]
        path = next((path for path in paths if path.split(".")[-1].lower() in known), None)
        if path is None:
            raise ValueError(f"the module has no parameter for {name}; it has {', '.join(paths)}")
        if value is not None:
            value = torch.nn.Parameter(value, requires_grad=value.requires_grad)
        setattr(module.get_submodule(path.rpartition(".")[0]), path.split(".")[-1], value)
        return value

    def forward(self, given: Values, eps: float) -> tuple[Values, Any]:
        """Return the results by name, and what backward needs."""
        x, self.turn = given["x"], self.turn + 1
        values = {**given, "eps": eps, "shape": [x.shape[-1]], "size": x.shape[-1]}
        values["group"] = self.manifest["group"]
        for _ in range(2):  # results that are not written must not hold those of earlier calls
            torch.full(x.shape, (math.nan, 123.0)[self.turn % 2], dtype=x.dtype, device=x.device)
        for name in self.manifest["inputs"] if self.autograd else ():
            if values[name] is not None:
                values[name].requires_grad_()
        with torch.set_grad_enabled(self.autograd):
            results, rest = self.run(values)
        for each in results:
            if each is not None and not isinstance(each, torch.Tensor):
                raise TypeError(f"a result is of type {type(each).__name__}, and no tensor")
        inputs = [values[name] for name in self.manifest["inputs"]]
        return dict(zip(self.manifest["outputs"], results)), (results, inputs, rest)

    def backward(self, given: Values, saved: Any) -> Values:
        """Return the gradients by name, or nothing if there is no backward pass."""
        names, (results, inputs, rest) = self.manifest["gradients"], saved
        incoming = [given[name] for name in self.manifest["incoming"]]
        if self.explicit:
            with torch.no_grad():
                returned = self.explicit(*incoming, *rest)
            gradients = [*returned] if isinstance(returned, (tuple, list)) else [returned]
            if len(gradients) != len(names):
                text = f"{len(gradients)} results, not {', '.join(names[:-1])} and {names[-1]}"
                raise TypeError(f"backward returned {text}")
            return dict(zip(names, gradients))
        if not self.autograd:
            return {}
        pairs = [(y, dy.to(y.dtype)) for y, dy in zip(results, incoming) if y.requires_grad]
        wanted = [each for each in inputs if each is not None]
        ys, dys = [y for y, _ in pairs], [dy for _, dy in pairs]
        found = iter(torch.autograd.grad(ys, wanted, dys, retain_graph=True, allow_unused=True))
        return {n: None if each is None else next(found) for n, each in zip(names, inputs)}

    def both(self, given: Values, eps: float) -> Values:
        """Return the results of forward and backward."""
        results, saved = self.forward(given, eps)
        return {**results, **self.backward(given, saved)}


def strided_copy(tensor: Any) -> Any:
    """Return a copy with the same strides; memory between its elements is NaN."""
    size = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    memory = torch.full((max(size, 0),), math.nan, dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(tensor.shape, tensor.stride()).copy_(tensor)


class UnfinishedError(Exception):
    """A result had other bits once the device was done."""


class Session:
    """The calls of one child process."""

    def __init__(self, args: Any, folder: Path, log: Log) -> None:
        self.manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        self.content, self.log = bytearray((folder / "cases.bin").read_bytes()), log
        self.records = {entry["step"]: entry for entry in log.entries if "step" in entry}
        self.file = folder / "results" / "arrays.bin"
        self.pool: Any = {}
        self.plain: Values = {}
        self.results: Values = {}
        self.given: Values = {}
        self.before: Values = {}
        self.kernel = Kernel(args, self.manifest)
        self.patience = min(self.manifest["patience"], args.seconds)
        if not args.backward and not args.forward_only:
            self.kernel.autograd = self.is_differentiable()
        facts = {"torch": torch.__version__, "python": platform.python_version()}
        if args.device.startswith("cuda"):
            facts["gpu"] = torch.cuda.get_device_name(args.device)
        backward = bool(self.kernel.autograd or args.backward)
        header = {"question": self.manifest["question"], "backward": backward, "facts": facts}
        header |= {name: getattr(args, name) for name in ("target", "form", "device", "seconds")}
        if not log.entries:
            log.write(**header)
        if log.entries[0] != header:
            sys.exit(f"{log.path.parent} has results of another run: remove that folder")

    def is_differentiable(self) -> bool:
        """Call the kernel with ones, and return True if autograd differentiates its result."""
        kernel, error = self.kernel, None
        may_be = kernel.form in ("functional", "module") and self.manifest["gradients"]
        for ones, kernel.written in self.manifest["ones"]:
            for autograd in (True, False) if may_be else (False,):
                kernel.autograd = autograd
                try:
                    results, _ = kernel.forward(self.stored(ones), 1e-5)
                    first = next(iter(results.values()))
                    return autograd and bool(getattr(first, "requires_grad", False))
                except Exception as rejected:
                    error = rejected
        sys.exit(f"it cannot be called with {kernel.arguments}: {describe(error)}")

    def tensor(self, at: int, kind: str, shape: list[int]) -> Any:
        """Return an array of the recording."""
        dtype, count = getattr(torch, kind), math.prod(shape)
        options = {"dtype": dtype, "count": count, "offset": at}
        flat = torch.frombuffer(self.content, **options) if count else torch.empty(0, dtype=dtype)
        return flat.reshape(shape)

    def place(self, values: Any, layout: Any, name: str = "") -> Any:
        """Copy values to the device, in a layout; by name, to the memory of an earlier call."""
        shape, stride, offset = layout or (values.shape, values.stride(), 0)
        self.before[name] = values = values.reshape(shape)
        size = offset + 1 + sum((n - 1) * step for n, step in zip(shape, stride))
        memory = torch.empty(max(size, 0), dtype=values.dtype, device=self.kernel.device)
        memory = self.pool.setdefault((name, size, values.dtype), memory) if name else memory
        return memory.fill_(GAP).as_strided(shape, stride, offset).copy_(values)

    def stored(self, entries: Values) -> Values:
        """Return stored inputs, in new memory."""
        return {
            n: each and self.place(self.tensor(*each[:3]), each[3]) for n, each in entries.items()
        }

    def inputs(self, case: Values, step: Values, *, reuse: bool = True) -> Values:
        """Return the inputs of a call: rows of the case in some order and layout."""
        values, layouts, manifest = {}, step.get("layouts", {}), self.manifest
        for name, entry in case["arrays"].items():
            tensor = entry and self.tensor(*entry)
            if tensor is not None and name in manifest["rows"]:
                tensor = tensor[self.order(case, step)]
                if name in manifest["incoming"] and "idle" in step:
                    tensor[slice(*step["idle"])] = 0
                for number in step.get("below", ()):
                    tensor = torch.cat([tensor, torch.full_like(tensor[:1], float(number))])
            if step["call"][0] == "large forward" and name in manifest["incoming"]:
                tensor = None
            layout = layouts.get(name)
            values[name] = tensor if tensor is None else self.place(tensor, layout, name * reuse)
        return values

    def order(self, case: Values, step: Values) -> Any:
        """Return, for each row of a call, the row of the case."""
        start, stop, stride, each = step["rows"]
        return torch.arange(start, stop, stride) // each % max(case["distinct"], 1)

    def keep(self, results: Values, prefix: str = "") -> None:
        """Copy results; if no stream waits for the kernel, a second copy has other bits."""
        copies = {name: on_host(each) for name, each in results.items()}
        self.results |= {prefix + name: each for name, each in copies.items()}
        if self.kernel.device.type != "cpu":
            getattr(torch, self.kernel.device.type).synchronize()
            for name, each in results.items():
                if not same(on_host(each), copies[name]):
                    raise UnfinishedError(f"returned {name} before it was computed")

    def passes(self, case: Values, step: Values, note: Values) -> None:
        """Make the passes of a call, and keep the results."""
        kind, eps, kernel = step["call"][0], float.fromhex(case["eps"]), self.kernel
        if kind == "many":
            self.repeat(case, step, note)
            return
        others = [self.stored(each) for each in step.get("others", ())]
        self.given |= self.inputs(case, step)
        given = self.given
        for other in others if kind == "after others" else ():
            with contextlib.suppress(Exception):  # it may not support this width
                kernel.both(other, eps)
        results, saved = kernel.forward(given, eps)
        if kind not in ("later", "paused"):
            self.keep(results)
        if kind == "interleaved":
            kernel.forward({**given, **others[0]}, eps)
        gradients = {} if kind == "large forward" else kernel.backward(given, saved)
        if kind == "twice" and gradients:
            try:
                gradients = kernel.backward(self.inputs(case, step, reuse=False), saved)
            except Exception as error:
                note["left_out"] = f"a second backward pass is refused: {describe(error)}"
                return
        time.sleep(PAUSE_SECONDS if kind == "paused" else 0)
        later = kernel.both({**given, **others[0]}, eps) if kind == "later" else {}
        self.keep({**results, **gradients} if kind in ("later", "paused") else gradients)
        self.keep(later, "later ")

    def repeat(self, case: Values, step: Values, note: Values) -> None:
        """Make equal calls until bits differ, or until there were enough of them."""
        stop, few, seconds, longest = step["many"]
        first: Values = {}
        start = time.process_time()
        for number in range(stop):
            self.keep(self.kernel.both(self.inputs(case, step), float.fromhex(case["eps"])))
            first = first or {**self.results}
            changed = [name for name in first if not same(first[name], self.results[name])]
            note["holds"] = {name: [str(number)] for name in changed}
            limit = seconds if number > few else longest
            if changed or time.process_time() - start > limit:
                return

    def make(self, number: int, case: Values, step: Values) -> Any:
        """Make a call unless it was made, and return its record."""
        if number in self.records:
            return self.records[number]
        self.log.write(begin=number)
        self.kernel.written = case["written"]
        for some in (self.results, self.given, self.before):
            some.clear()
        note, kind, start = {"failure": "", "left_out": ""}, step["call"][0], time.perf_counter()
        try:
            self.passes(case, step, note)
        except UnfinishedError as error:
            note["failure"] = f"{error}: a stream is not waited for"
        except BaseException as error:
            note["failure"] = f"raised {describe(error)}"
            note["failure"] += "" if isinstance(error, Exception) else ENDS
            if kind.startswith("large") and "memory" in str(error):
                rows = f"{step['call'][2]:,} rows of {case['size']}"
                note = {
                    "failure": "",
                    "left_out": f"there was not enough memory for {rows}: {error}",
                }
        note["seconds"] = time.perf_counter() - start - PAUSE_SECONDS * (kind == "paused")
        present = {name: each for name, each in self.given.items() if each is not None}
        damaged = [
            n for n, t in present.items() if not same(on_host(t), self.before[n].contiguous())
        ]
        self.results |= {f"given {name}": on_host(self.given[name]) for name in damaged}
        if kind == "plain":
            self.plain = {}
        arrays = {name: self.write(number, name, case, step) for name in self.results}
        self.log.write(step=number, damaged=damaged, arrays=arrays, **note)
        self.records[number] = self.log.entries[-1]
        return self.records[number]

    def write(self, number: int, name: str, case: Values, step: Values) -> Values | None:
        """Write a result to the file, but for rows that have the bits of the plain call."""
        result = self.results[name]
        if result is None:
            return None
        order = self.order(case, step)
        count = len(order) + len(step.get("below", ()))
        by_rows = result.dim() > 0 and len(result) == count
        order = order if by_rows else torch.zeros(1, dtype=torch.int64)
        table = rows_of_bits(result, count if by_rows else 1)
        base, own = self.plain.get(name), table[:0]
        if step["call"][0] == "plain":
            own = table[: case["distinct"] if by_rows else 1].clone()
            base = self.plain[name] = number, own
        changed = torch.ones(len(table), dtype=torch.bool)
        if (
            result.numel()
            and base
            and base[1][:0].shape == table[:0].shape
            and base[1].dtype == table.dtype
            and int(order.max()) < len(base[1])
        ):
            changed[: len(order)] = (table[: len(order)] != base[1][order]).any(1)
        places = changed.nonzero().flatten()
        content = b"".join(raw(each) for each in (own, places, table[places]))
        with self.file.open("ab") as file:
            at = file.tell()
            file.write(content)
        kind = str(result.dtype).removeprefix("torch.")
        sizes = {
            "rows": len(table) * by_rows,
            "own": len(own),
            "changed": len(places),
            "bytes": len(content),
        }
        digest = hashlib.sha256(content).hexdigest()
        place = {"at": at, "sha256": digest, "base": base and base[0]}
        return {"type": kind, "shape": [*result.shape], **sizes, **place}

    def work(self) -> None:
        """Make the calls of all cases; after a failure, go on with the next case."""
        cases, trials = self.manifest["cases"], self.manifest["trials"]
        for number, index in enumerate(trials):
            record = self.make(number, cases[index], cases[index]["steps"][0])
            if not record["failure"].startswith("raised "):
                break
        else:
            cases = []
        number = len(trials) - 1
        for case in cases:
            plain, estimate, stopped = 0.0, 0.0, False
            for step in case["steps"]:
                number += 1
                fast = "fast" if estimate <= self.patience else "slow"
                if stopped or step.get("when", fast) != fast:
                    continue
                record = self.make(number, case, step)
                stopped = bool(record["failure"] or (record["left_out"] and "ratio" in step))
                plain = plain or record.get("seconds", 0.0)
                if not stopped and "ratio" in step:
                    estimate = plain + step["ratio"] * max(record["seconds"] - plain, 0.0)
        if "end" not in self.log.entries[-1]:
            self.log.write(end=True)


def raw(tensor: Any) -> bytes:
    """Return the bytes of a tensor of the CPU, without NumPy."""
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def parse_arguments(arguments: list[str] | None = None) -> Any:
    """Return the options of the command line."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("target", help="FILE.py:NAME or package.module:NAME")
    parser.add_argument("folder", type=Path, help="the folder of the recording")
    parser.add_argument("--device", default="cpu", help="such as cuda")
    parser.add_argument(
        "--form", default="functional", choices=("functional", "out", "inplace", "module")
    )
    parser.add_argument("--signature", default="", help="its arguments in order: 'x, weight, eps'")
    parser.add_argument(
        "--backward", default="", help="a function of dy and what forward returned"
    )
    parser.add_argument("--forward-only", action="store_true", help="make no backward pass")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of one call")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    """Run as the parent or as the child."""
    args = parse_arguments()
    (args.folder / "results").mkdir(exist_ok=True)
    path = args.folder / "results" / "log.jsonl"
    return run_calls(args, path) if args.child else supervise(args, path)


def run_calls(args: Any, path: Path) -> int:
    """Make the calls in this process, and return its exit code."""
    # The parent never writes to the pipe: it ends with the parent, and so does the child.
    threading.Thread(target=lambda: sys.stdin.read() or os._exit(1), daemon=True).start()
    global torch
    torch = importlib.import_module("torch")
    warnings.simplefilter("ignore")
    try:
        Session(args, args.folder, Log(path)).work()
    except Exception:  # not the kernel's: those are results
        traceback.print_exc()
        return BROKEN
    return 0


if __name__ == "__main__":
    sys.exit(main())
