"""Make the calls of a recording for a score: like runner.py, and note how a kernel cheats.

    python guarded.py my_kernel.py:rms_norm folder
    python guarded.py --serve

This file needs PyTorch, and runner.py beside it. It writes to results/guards.json which operators
of PyTorch were called, in any thread, and which functions of the process were replaced. With
--serve it reads lists of arguments, one a line as JSON, and answers each with an exit code:
PyTorch is imported once, and each list is run in a fork.
"""

import contextlib
import gc
import importlib.util
import json
import operator
import os
import re
import secrets
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

MODULES = (
    *("torch", "torch.autograd", "torch.autograd.profiler", "torch.nn.functional"),
    *("torch.overrides", "torch._C._autograd", "torch.utils._python_dispatch"),
    *("torch.testing", "builtins", "ctypes", "hashlib", "json", "os", "threading", "time"),
)
"""Modules whose functions a kernel must not replace; those of the runner are compared as well."""
BY_PYTORCH = {"torch.manual_seed"}
"""Functions that ``torch.compile`` replaces."""
OWN_NORMS = (
    *("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm"),
    *("weight_norm", "norm_except_dim", "renorm"),
)
"""Parts of the names of PyTorch's own norms."""
IN_PYTHON = ("torch._refs._normalize", "torch.nn.functional.local_response_norm")
"""Norms in Python without an operator or a name of that kind."""
SYMBOLS = re.compile(r"_ZNK?(2at|3c10|5torch)|(_Z\d+)?THP|aoti_torch|dl(v?sym|open)$")
"""How names of functions in the libraries of PyTorch begin, and functions that find them."""
OTHER_NORMS = ("truenorm", "apex", "flash_attn", "liger_kernel", "quack", "transformer_engine")
"""Packages that have norms."""
NO_GRAD, INFERENCE = "no_grad", "inference_mode"
"""Modes of gradients; another one is a list of the inputs that require them."""
IN_MODEL, GAPS, CHANGED, CHANGED_Y = "in a model", "gaps", "changed", "changed y"
"""Modes of inputs: x is no leaf and gamma an ``nn.Parameter``; gamma and beta have gaps in memory;
inputs or results are changed before the backward pass."""
SETTINGS = (
    *("get_default_dtype", "get_float32_matmul_precision", "get_num_threads", "is_grad_enabled"),
    *("are_deterministic_algorithms_enabled", "initial_seed", "is_inference_mode_enabled"),
    "is_anomaly_enabled",
)
"""Functions of PyTorch that return settings, which a call must not change."""
SETTERS = {
    "torch": (
        *("manual_seed", "seed", "set_default_dtype", "set_default_device", "set_num_threads"),
        *("set_flush_denormal", "set_float32_matmul_precision", "use_deterministic_algorithms"),
        "set_anomaly_enabled",
    ),
    "numpy.random": ("seed", "set_state"),
    "random": ("seed", "setstate"),
}
"""Functions that a call must not call: they may set what is already set."""
PRODUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "view": lambda _, x: x.view_as(x),
    "mul": lambda _, x: x * 1,
    "sub": lambda _, x: x - 0,
    "clone": lambda _, x: x.clone(),
    "transpose": lambda _, x: x.transpose(0, -1).transpose(0, -1),
    "add": lambda torch, x: x + torch.zeros_like(x),
    "dropout": lambda torch, x: torch.nn.functional.dropout(x, 0.0),
    "cat": lambda torch, x: torch.cat(x.split(1)),
    "embedding": lambda torch, x: torch.nn.functional.embedding(
        torch.arange(len(x), device=x.device), x
    ),
    "linear": lambda torch, x: torch.nn.functional.linear(
        x, torch.eye(x.shape[-1], dtype=x.dtype, device=x.device), x.new_zeros(x.shape[-1])
    ),
}
"""Operations whose result is x in a model: some results and gradients keep all bits, others those
of finite numbers but for the sign of 0."""
KEEP_ALL_BITS = ("view", "mul", "sub", "clone", "transpose")
LARGEST_PRODUCT = 2**22
"""Elements of x times D of an x that a matrix product makes."""
NOTES, OUTPUT = "guards.json", "output.txt"
NO_TORCH = 71  # exit code of a process that cannot import PyTorch


def import_torch() -> Any:
    """Import PyTorch, or end the process."""
    try:
        with contextlib.suppress(ImportError):  # it compiles functions that are replaced later
            importlib.import_module("torch._decomp.decompositions_for_jvp")
        return importlib.import_module("torch")
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(NO_TORCH)


def load_runner() -> Any:
    """Import runner.py, which is in the folder of this file."""
    spec: Any = importlib.util.spec_from_file_location(
        "runner", Path(__file__).with_name("runner.py")
    )
    runner = sys.modules["runner"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    return runner


class HeldFunctions:
    """The functions of modules, as they were before the kernel was loaded.

    Of the runner and of tensors, new attributes count as well: they may hide others.
    """

    def __init__(self, runner: Any, torch: Any) -> None:
        modules = {name: importlib.import_module(name) for name in MODULES}
        classes = {f"runner.{name}": getattr(runner, name) for name in ("Log", "Runner")}
        vars(runner).setdefault("__warningregistry__", {})  # warnings add it
        own = {"runner": runner, "torch.Tensor": torch.Tensor, **classes}
        self.closed = {name: (vars(each), {**vars(each)}) for name, each in own.items()}
        self.open = {
            name: (vars(each), {key: f for key, f in vars(each).items() if callable(f)})
            for name, each in modules.items()
        }
        every = {**self.open, **self.closed}.items()
        self.getters = {name: operator.itemgetter(*before) for name, (_, before) in every}
        self.tools = all, map, operator.is_  # a kernel may replace them
        self.contents = {
            f"{name}.{key}": (each, content_of(each))
            for name, (_, before) in every
            for key, each in before.items()
            if isinstance(each, FunctionType)
        }

    def is_same(self, owner: str, now: Any, before: dict[str, Any]) -> bool:
        """Return True if nothing is replaced: thousands of names are compared after each call."""
        every, over, same = self.tools
        if owner in self.closed and now.keys() != before.keys():
            return False
        try:
            return every(over(same, self.getters[owner](now), before.values()))
        except KeyError:
            return False

    def replaced(self) -> Iterator[str]:
        """Yield the names of functions that are not what they were."""
        for owner, (now, before) in {**self.open, **self.closed}.items():
            if not self.is_same(owner, now, before):
                for name in before if owner in self.open else {**before, **now}:
                    if now.get(name, self) is not before.get(name, self):
                        yield f"{owner}.{name}"

    def rewritten(self) -> set[str]:
        """Return the names of functions that have another content."""
        every, over, same = self.tools
        return {
            name
            for name, (each, before) in self.contents.items()
            if not every(over(same, content_of(each), before))
        }


def content_of(function: FunctionType) -> list[Any]:
    """Return the code of a function and the defaults of its arguments."""
    named = function.__kwdefaults__ or {}
    return [function.__code__, function.__defaults__, *named, *named.values()]


def settings_of(torch: Any) -> set[tuple[str, Any]]:
    """Return settings of PyTorch and Python."""
    settings = {(name.removeprefix("get_"), getattr(torch, name)()) for name in SETTINGS}
    most_of_an_ulp = 0.75 * sys.float_info.epsilon
    return settings | {
        ("rounding", (1.0 + most_of_an_ulp, -1.0 - most_of_an_ulp)),
        ("flush_denormal", bool(torch.full((), 1e-310, dtype=torch.float64) * 1 == 0)),
        ("gc", gc.isenabled()),
        ("switchinterval", sys.getswitchinterval()),
    }


def noting(
    called: set[str], name: str, function: Any, unless: Callable[[], bool] = lambda: False
) -> Any:
    """Return a function that notes its calls, unless another one says that they do not count."""

    def noted(*args: Any, **named: Any) -> Any:
        if not unless():
            called.add(name)
        return function(*args, **named)

    return noted


def is_compiling() -> bool:
    """Return True if a compiler of PyTorch is among the callers."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals.get("__name__", "").startswith(("torch._dynamo", "torch._inductor")):
            return True
    return False


def note_setters() -> set[str]:
    """Return the names of setters that are called from now on, other than by a compiler."""
    called: set[str] = set()
    for place, names in SETTERS.items():
        with contextlib.suppress(ImportError):  # PyTorch needs no NumPy
            module = importlib.import_module(place)
            for name in names:
                own = noting(called, f"{place}.{name}", getattr(module, name), is_compiling)
                setattr(module, name, own)
    return called


def overwritten_gaps(values: dict[str, Any], gap: float) -> set[str]:
    """Return the names of tensors whose memory between their elements has other numbers."""
    found = set()
    for name, each in values.items():
        # Most tensors fill their memory; this is asked after each call.
        if hasattr(each, "untyped_storage") and each.untyped_storage().nbytes() > each.nbytes:
            others = each.detach().new_empty(0).set_(each.untyped_storage()).clone()
            others.as_strided(each.shape, each.stride(), each.storage_offset()).fill_(gap)
            found |= {name} if bool((others != gap).any()) else set()
    return found


def is_of_package(thread: threading.Thread, folder: str) -> bool:
    """Return True if a thread runs a function of a package, such as a compiler of PyTorch."""
    code = getattr(getattr(thread, "_target", None), "__code__", None)
    return code is not None and code.co_filename.startswith(folder)


class Operators:
    """The operators of PyTorch that are called, as its profiler sees them.

    Modes of PyTorch see one thread only, and a kernel can switch them off.
    """

    def __init__(self, torch: Any) -> None:
        profiler, self.mark = torch.autograd.profiler, secrets.token_hex(8)
        config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        self.stop = torch.autograd._disable_profiler
        self.profile = profiler.profile(use_kineto=True, experimental_config=config)
        self.profile.__enter__()
        with profiler.record_function(self.mark):
            pass

    def names(self) -> list[str] | None:
        """Stop, and return the names; None if the kernel has stopped the profiler."""
        try:
            names = {event.name() for event in self.stop().events()}
        except RuntimeError:
            return None
        return sorted(names - {self.mark}) if self.mark in names else None


class Norms:
    """The norms of PyTorch that are called where its profiler sees no event.

    Kernels in the table of its dispatcher can be called without it, norms written in Python are
    in tables of decompositions, and ``ctypes`` finds the functions of a library.
    """

    def __init__(self, torch: Any, device: str) -> None:
        self.called, self.symbols, self.registered = set[str](), set[str](), set[str]()
        self.table = torch._C._dispatch_dump_table
        sys.addaudithook(self.hear)
        for name, module in [*sys.modules.items()]:
            if name.startswith(("torch._refs", "torch._decomp")):
                for key, each in [*vars(module).items()]:
                    if is_norm(key) and callable(each):
                        setattr(module, key, noting(self.called, f"{name}.{key}", each))
        for place in IN_PYTHON:
            name, _, key = place.rpartition(".")
            if each := getattr(sys.modules.get(name), key, None):
                setattr(sys.modules[name], key, noting(self.called, place, each))
        for table in torch._decomp.global_decomposition_table.values():
            for overload, each in [*table.items()]:
                if is_norm(str(overload)):
                    table[overload] = noting(self.called, overload.name(), each)
        self.tables = dict[str, str]()
        if hasattr(torch.library, "get_kernel"):  # PyTorch 2.9
            with warnings.catch_warnings(action="ignore"):  # that kernels are replaced
                self.replace_kernels(torch, device)

    def hear(self, event: str, args: Any) -> None:
        """Note the functions of PyTorch's libraries that are looked up."""
        if event == "ctypes.dlsym" and SYMBOLS.match(str(args[1])):
            self.symbols.add(str(args[1]))

    def replace_kernels(self, torch: Any, device: str) -> None:
        """Replace the kernels of norms by functions that note their calls."""
        library, make = torch.library.Library("aten", "IMPL"), torch._C._dispatch_library
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        of_device = torch._C._dispatch_key_for_device(device)
        every = torch._C._dispatch_get_all_op_names()
        names = [name for name in every if name.startswith("aten::") and is_norm(name)]
        for name in names:
            # One that is made of other operators has the same kernel for autograd.
            composite = has(name, "CompositeImplicitAutograd")
            kernels = {}
            for key in (of_device, f"Autograd{of_device}")[: 1 + composite]:
                with contextlib.suppress(RuntimeError):  # it has none
                    kernels[key] = torch.library.get_kernel(name, key).call_boxed
            for key, kernel in kernels.items():
                library.impl(name, noting(self.called, name, kernel), key, with_keyset=True)
        self.library, self.tables = library, {name: self.table(name) for name in names}

        def noted(kind: str, name: str, *args: Any) -> Any:
            if name == "aten":
                self.registered.add("torch.library")
            return make(kind, name, *args)

        torch._C._dispatch_library = noted

    def replaced(self) -> set[str]:
        """Return the names of norms whose kernels are not those of this object."""
        changed = {name for name, before in self.tables.items() if self.table(name) != before}
        return changed | self.registered


def is_norm(name: str) -> bool:
    """Return True for the name of a norm of PyTorch."""
    return any(norm in name for norm in OWN_NORMS)


def mode_of(runner: Any, kind: str) -> Any:
    """Return a mode of the case that is called, as the recording says."""
    if not runner.note:  # the first call has no notes
        return ""
    case = runner.manifest["calls"][runner.log.entries[-1]["begin"]]["group"]
    modes = runner.manifest["modes"]
    return modes[case][kind] if case < len(modes) else ""


def in_mode(forward: Any, torch: Any, graphs: set[str]) -> Any:
    """Return a method that takes results from a second call, in the mode of the case.

    That has no gradients, or is in inference mode, or only some inputs require gradients: then
    `of_some` takes their gradients from that call. `graphs` gets the modes without gradients in
    which results have them.
    """

    def moded(self: Any, values: dict[str, Any]) -> Any:
        self.frozen = ()
        results, saved = forward(self, values)
        mode, autograd = mode_of(self, "gradients"), self.autograd
        if not mode or not (autograd or mode == INFERENCE):
            return results, saved
        names = [name for name in self.manifest["inputs"] if values[name] is not None]
        if isinstance(mode, list):
            self.frozen = [name for name in names if name not in mode]
            results, partial = forward(self, values)
            return results, (*saved, partial, mode)
        self.autograd = False
        try:
            model = mode_of(self, "inputs") == IN_MODEL  # it has parameters that require gradients
            without = {} if model else {name: values[name].detach() for name in names}
            with torch.inference_mode(mode == INFERENCE):
                results, _ = forward(self, {**values, **without})
            if any(getattr(each, "requires_grad", False) for each in results.values()):
                graphs.add(mode)
        finally:
            self.autograd = autograd
        return results, saved

    return moded


def loading(load: Any, torch: Any, gap: float) -> Any:
    """Return a method that makes parameters as the mode of the case says.

    Those of a model are the same objects from call to call, changed as by an optimizer, and every
    second time they have a gradient.
    """
    made: dict[Any, Any] = {}

    def moded(self: Any, entry: Any, *, reuse: bool = True) -> Any:
        values, mode = load(self, entry, reuse=reuse), mode_of(self, "inputs")
        for name in self.manifest["parameters"] if mode in (IN_MODEL, GAPS) else ():
            each = values.get(name)
            if each is not None and mode == IN_MODEL:
                key = name, each.shape, each.dtype
                if not reuse or key not in made:
                    values[name] = torch.nn.Parameter(each.clone())
                    if reuse:
                        made[key] = values[name]
                else:  # .data leaves no trace, other than an optimizer
                    values[name] = made[key]
                    values[name].data.copy_(each)
                values[name].grad = torch.ones_like(each) if self.turn % 2 else None
            elif each is not None:
                memory = each.new_full((2 * each.numel(),), gap)
                values[name] = memory[::2].view(each.shape).copy_(each)
        return values

    return moded


def preparing(method: Any, torch: Any) -> Any:
    """Return a method that detaches the inputs that are to require no gradients.

    Data of a model are results of other operations; without gradients, a module evaluates.
    """

    def prepared(self: Any, *args: Any) -> Any:
        *modules, values = args
        changed = {name: values[name].detach() for name in self.frozen}
        if mode_of(self, "inputs") == IN_MODEL:
            for name in self.frozen:
                if name in self.manifest["parameters"]:
                    changed[name] = torch.nn.Parameter(changed[name], requires_grad=False)
            for name in self.manifest["data"] if self.autograd else ():
                each = changed.get(name, values[name])
                changed[name] = produced(torch, each, mode_of(self, "producer"))
        for module in modules:
            module.train(self.autograd)
        return method(self, *modules, {**values, **changed})

    return prepared


def produced(torch: Any, x: Any, producer: str) -> Any:
    """Return x as the result of an operation, or of a view if that would change it."""
    small = x.numel() * x.shape[-1] <= LARGEST_PRODUCT
    matrix = x.dim() == 2 and x.is_contiguous() and x.storage_offset() == 0
    if matrix and (small or producer != "linear"):
        result = PRODUCERS[producer](torch, x)
        if torch.equal(result, x):
            return result
    return x.view_as(x)


def expanded(dy: Any, gap: float) -> Any:
    """Return a gradient of equal numbers as one number, as ``y.sum().backward()`` does.

    Memory after that number has others.
    """
    if dy.numel() < 2 or not bool((dy == dy.reshape(-1)[0]).all()):
        return dy
    memory = dy.new_full((dy.numel(),), gap)
    memory[0] = dy.reshape(-1)[0]
    return memory[0].expand(dy.shape)


def added(runner: Any, torch: Any, values: dict[str, Any], saved: Any) -> dict[str, Any]:
    """Return gradients that ``backward`` adds to zeros, as when batches are accumulated."""
    (returned, inputs), manifest = saved, runner.manifest
    some = [each for each in inputs if each is not None]
    before = [each.grad for each in some]
    for each in some:
        each.grad = torch.zeros_like(each)
    incoming = [values[name] for name in manifest["incoming"]]
    pairs = zip(returned, incoming, strict=False)
    ys, dys = zip(*[(y, dy.to(y.dtype)) for y, dy in pairs if y.requires_grad], strict=True)
    torch.autograd.backward(ys, dys, retain_graph=True)
    gradients = [each if each is None else each.grad for each in inputs]
    for each, grad in zip(some, before, strict=True):
        each.grad = grad
    return dict(zip(manifest["gradients"], gradients, strict=True))


def of_some(backward: Any, torch: Any, gap: float) -> Any:
    """Return a method that takes some gradients from a call where no others are required.

    In a model, autograd itself passes gradients to the kernel: those of a view of its result. And
    gradients are added to those that inputs have.
    """

    def merged(self: Any, values: dict[str, Any], saved: Any) -> Any:
        if self.autograd:
            incoming = self.manifest["incoming"]
            values = {**values, **{name: expanded(values[name], gap) for name in incoming}}
        whole, others = saved[:2], saved[2:]
        if self.autograd and mode_of(self, "inputs") == IN_MODEL:
            whole = [y if y is None else y.view_as(y) for y in whole[0]], whole[1]
            gradients = added(self, torch, values, whole)
        else:
            gradients = backward(self, values, whole)
        if others:
            partial, wanted = others
            differentiable = any(y is not None and y.requires_grad for y in partial[0])
            some = backward(self, values, partial) if differentiable else {}
            pairs = zip(self.manifest["gradients"], self.manifest["inputs"], strict=False)
            gradients |= {name: some.get(name) for name, each in pairs if each in wanted}
        return gradients

    return merged


def of_changed(backward: Any, torch: Any) -> Any:
    """Return a method during which inputs or results are changed, as the mode of the case says.

    Autograd raises an exception if the kernel has saved them by ``save_for_backward``.
    """

    def moded(self: Any, values: dict[str, Any], saved: Any) -> Any:
        mode = mode_of(self, "inputs")
        if not self.autograd or mode not in (CHANGED, CHANGED_Y):
            return backward(self, values, saved)
        every = saved[0] if mode == CHANGED_Y else map(values.get, self.manifest["inputs"])
        given = [each for each in every if each is not None]
        with torch.no_grad():
            before = [each.clone() for each in given]
            for each in given:  # one column: a kernel that looks at a few sees nothing
                each[..., int(mode_of(self, "place") * each.shape[-1])] += 8
        try:
            return backward(self, values, saved)
        finally:
            with torch.no_grad():
                for each, numbers in zip(given, before, strict=True):
                    each.copy_(numbers)

    return moded


def run_guarded(runner: Any, args: Any, path: Path) -> int:
    """Make the calls in this process, and write what the guards saw."""
    runner.torch = torch = import_torch()
    replaced, running, settings, gaps, graphs = [set[str]() for _ in range(5)]
    last: set[tuple[str, Any]] = set()  # settings after a call; those on import do not count
    list_threads, own = threading.enumerate, str(Path(torch.__file__).parent)

    def checking(method: Any) -> Any:
        """Return a method after which threads, settings and replaced functions are looked at."""

        def checked(*args: Any, **named: Any) -> Any:
            nonlocal last
            if not last:
                last = settings_of(torch)
                setters.clear()
            before = list_threads()
            result = method(*args, **named)
            replaced.update(held.replaced())  # before anything else may put them back
            now = settings_of(torch)
            settings.update(dict(last - now), setters)
            last = now
            gaps.update(overwritten_gaps(args[1], runner.GAP))
            started = [each for each in list_threads() if each not in before]
            running.update(each.name for each in started if not is_of_package(each, own))
            return result

        return checked

    for name in ("call", "call_module"):
        setattr(runner.Runner, name, preparing(getattr(runner.Runner, name), torch))
    runner.Runner.load = loading(runner.Runner.load, torch, runner.GAP)
    runner.Runner.forward = checking(in_mode(runner.Runner.forward, torch, graphs))
    gradients = of_some(runner.Runner.backward, torch, runner.GAP)
    runner.Runner.backward = checking(of_changed(gradients, torch))
    dumps, write_text = json.dumps, Path.write_text
    norms, setters = Norms(torch, torch.device(args.device).type), note_setters()
    held, operators = HeldFunctions(runner, torch), Operators(torch)
    code: int = runner.run_calls(args, path)
    replaced.update(held.replaced(), held.rewritten(), norms.replaced())
    notes = {
        "operators": operators.names(),
        "replaced": sorted(replaced - BY_PYTORCH),
        "threads": sorted(running),
        "settings": sorted(settings),
        "gaps": sorted(gaps),
        "graphs": sorted(graphs),
        "norms": sorted(norms.called),
        "symbols": sorted(norms.symbols),
        "imports": sorted({*OTHER_NORMS} & {*sys.modules}),
    }
    write_text(path.with_name(NOTES), dumps(notes), encoding="utf-8")
    return code


class Fork:
    """A process that continues this one, with the methods of `subprocess.Popen` that are used."""

    def __init__(self, groups: Any, work: Callable[[], int], output: Path) -> None:
        self.returncode: int | None = None
        groups.watch()
        self.pid = os.fork()
        if not self.pid:
            os._exit(self.run(work, output))
        groups.note(self.pid, alive=True)

    def run(self, work: Callable[[], int], output: Path) -> int:
        """Do the work in the child, without access to the streams of the parent."""
        os.setsid()
        stdin = os.open(os.devnull, os.O_RDONLY)
        stdout = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream, file in enumerate((stdin, stdout, stdout)):
            os.dup2(file, stream)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        try:
            return work()
        except SystemExit as end:  # it cannot be called
            sys.stderr.write(f"{end}\n")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 1

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def serve(runner: Any) -> None:
    """Run the arguments of each line in a fork."""
    import_torch()
    with contextlib.suppress(ImportError):  # autograd imports it, which takes a second
        importlib.import_module("torch.fx.experimental.symbolic_shapes")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        args, path = runner.prepare(json.loads(line))
        work = partial(run_guarded, runner, args, path)
        start = partial(Fork, runner.GROUPS, work, args.folder / OUTPUT)
        code = runner.supervise(args, path, start)
        answers.write(f"{code}\n")
        answers.flush()


def main() -> int:
    """Serve, or make the calls of one recording."""
    runner = load_runner()
    if sys.argv[1:] == ["--serve"]:
        serve(runner)
        return 0
    args, path = runner.prepare()
    if not args.child:
        code: int = runner.supervise(args, path)
        return code
    code = run_guarded(runner, args, path)
    sys.stderr.flush()
    os._exit(code)  # threads of the kernel may never end


if __name__ == "__main__":
    sys.exit(main())
