"""The entry of whole calls: random calls, references and memory.

`Fuzzer` draws arguments that the entry must accept, decline or reject. `_is_fast_path` states
independently, in terms of NumPy, which arrays it may accept. The general path is the oracle: it
gives the same bits, and raises the same errors.
"""

import gc
import math
import os
import pickle
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import truenorm as tn
from shared.promise.checking import BACKENDS, without_entry

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.api import fast_path
from truenorm.kernels.call import LAYER_NORM, RMS_NORM, Norm, Settings
from truenorm.kernels.native import _core

SLOW = pytest.mark.slow(reason="millions of calls take minutes")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [*map(np.dtype, (np.float32, np.float16, BFLOAT16, np.float64))]
SHAPES = ((1, 1, 8), (1, 64), (3, 1), (5, 7), (300, 2), (70, 5), (12,), (2, 0), (0, 4), ())
LARGE = ((40, 450), (2, 9000))
FUNCTIONS: dict[Norm, tuple[Callable[..., Any], ...]] = {
    LAYER_NORM: (tn.layer_norm, tn.layer_norm_forward, tn.layer_norm_backward),
    RMS_NORM: (tn.rms_norm, tn.rms_norm_forward, tn.rms_norm_backward),
}
PARTIALS: dict[Norm, Callable[..., Any]] = {
    LAYER_NORM: tn.layer_norm_backward_partial,
    RMS_NORM: tn.rms_norm_backward_partial,
}


class Number:
    """An object that can be converted to a number."""

    def __float__(self) -> float:
        return 0.5

    def __index__(self) -> int:
        return 3


class Subclass(np.ndarray[Any, Any]):
    """Arrays of another type are not for the entry."""


USUAL = {
    "axis": -1,
    "eps": 1e-5,
    "rounding": "correct",
    "backend": None,
    "threads": None,
    "stream": None,
}
OTHER: dict[str, list[Any]] = {
    "axis": [0, 1, -2, 2**70, -(2**70), 2**63, True, (-1,), (), (-1, -2), (0, 1), None, "x",
        np.int64(-1), Number()],
    "eps": [0.0, -0.0, 1e-12, 1, True, 1e300, 2.0**-200, 5e-324, -1.0, np.nan, np.inf, None, "1"],
    "rounding": ["fast", "fast", "fast", "".join(["fa", "st"]), "Fast", "", None, 1,
        np.str_("fast")],
    "backend": ["native", "native", "reference", "nope", 1, b"native", ["native"]],
    "threads": [1, 2, 3, 64, 1000, 2**31 - 1, 2**31, 2**70, 0, -1, True, "2", np.int64(2), 1.0],
    "stream": [0, object()],
}  # fmt: skip
OTHER["eps"] += [Number(), np.float32(0.5), [1.0], 10**400]
VARIABLES = [
    ("TRUENORM_THREADS", "2"), ("TRUENORM_THREADS", "many"), ("TRUENORM_ROUNDING", "fast"),
    ("TRUENORM_BACKEND", "reference"), ("TRUENORM_BACKEND", ""), ("OMP_NUM_THREADS", "3"),
]  # fmt: skip


def _others(x: Any) -> list[Any]:
    """Return objects in place of an array: other layouts, types, and no arrays."""
    shifted = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    read_only = x.copy()
    read_only.flags.writeable = False
    return [
        read_only,
        shifted,
        np.asfortranarray(x),
        np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
        x.astype(x.dtype.newbyteorder()) if x.dtype != BFLOAT16 else x,
        *(x.astype(dtype) for dtype in DTYPES),
        x.astype(np.int32),
        x.astype(object),
        x.view(Subclass),
        np.broadcast_to(x.dtype.type(1), x.shape),
        np.ma.masked_array(x),
        x.tolist(),
        None,
        1.5,
        "text",
        object(),
        np.zeros(3, [("a", "f4")]),
        memoryview(bytearray(16)),
    ]


class Pool:
    """Arrays of one shape and type."""

    def __init__(self, random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> None:
        self.size = shape[-1] if shape else 0

        def drawn(shape: tuple[int, ...], how: int) -> Any:
            with np.errstate(all="ignore"):
                values = random.standard_normal(shape) * (1, 1e-42, 1e38, 1)[how]
                if how == 3 and values.size:
                    values.reshape(-1)[0] = random.choice([np.nan, np.inf, 0.0])
                return np.asarray(values).astype(dtype)

        count = int(np.prod(shape))
        arena = np.zeros(3 * count + self.size, dtype)
        self.rows = [drawn(shape, k) for k in (0, 0, 0, 0, 1, 2, 3)]
        self.other_rows = _others(self.rows[0])
        self.other_rows += [arena[k : k + count].reshape(shape) for k in (0, count // 2, count)]
        self.vectors = [drawn((self.size,), k) for k in (0, 0, 0, 3)]
        self.vectors += [each.astype(np.float32) for each in self.vectors[:2]]
        self.other_vectors = [*_others(self.vectors[0]), arena[count : count + self.size]]
        self.saved: list[Any] = []


def _native(x: Any) -> Any:
    return x.dtype.newbyteorder("=")


def _is_fast_path(x: Any, shape: Any = None) -> bool:
    """Return True if the entry may accept an array, of a shape if one is given."""
    is_array = type(x) is np.ndarray and _native(x) in DTYPES
    return is_array and (shape is None or x.shape == shape)


def _last_axes(axis: Any, count: int) -> tuple[int, ...]:
    """Return the axes that an argument names, which must be the last ones."""
    named = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(sorted(each % count for each in named))
    assert axes == tuple(range(count - len(named), count))
    return axes


def _by_driver(norm: Norm, dy: Any, saved: Any, backend: Any, threads: Any, stream: Any) -> Any:
    """Return the results of `backward_partial` by the general path."""
    gamma_dtype = None if saved.gamma is None else saved.gamma.dtype
    if saved.settings.rounding == "fast" or np.float64 in (
        each for each in (saved.x.dtype, gamma_dtype, saved.beta_dtype) if each is not None
    ):
        return fast_path.general_backward(norm, dy, saved, None, backend, threads, stream)
    dx, partial = PARTIALS[norm](dy, saved, backend=backend, threads=threads)
    sums = (partial._dgamma, partial._dbeta)
    return dx, *((sum_.first, bytearray(sum_.limbs.tobytes())) for sum_ in sums)


def _bytes(results: Any) -> list[Any]:
    """Return the bits of all results, and their types and shapes."""
    results = results if isinstance(results, tuple) else (results,)
    return [
        (each.dtype, each.shape, each.tobytes()) if isinstance(each, np.ndarray) else each
        for each in results
        if not isinstance(each, tn.Saved)
    ]


class Fuzzer:
    """Make random calls from a seed; `counts` records how they end."""

    def __init__(self, seed: int, *, compared: float = 0.003) -> None:
        self.random = np.random.default_rng(seed)
        self.pools = [Pool(self.random, shape, dtype) for shape in SHAPES for dtype in DTYPES]
        self.large = [Pool(self.random, shape, dtype) for shape in LARGE for dtype in DTYPES]
        self.compared = compared
        self.counts: Counter[str] = Counter()
        self._draws: list[float] = []

    def draw(self) -> float:
        """Return a random number below 1."""
        if not self._draws:
            self._draws = self.random.random(100_000).tolist()
        return self._draws.pop()

    def choice(self, *candidates: list[Any]) -> Any:
        """Return an element of the first list most of the time, or of a later one."""
        chosen = candidates[0]
        if len(candidates) > 1 and self.draw() < 0.05:
            chosen = candidates[1]
        return chosen[int(self.draw() * len(chosen))]

    def run(self, calls: int) -> None:
        """Make so many calls, while the public functions take the general path."""
        fast_path.connect()
        with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
            without_entry(patched)
            warnings.simplefilter("ignore")
            while self.counts["calls"] < calls:
                pool = self.choice(self.large if self.draw() < 0.003 else self.pools)
                if self.draw() < 0.5 or not pool.saved:
                    self.forward(pool)
                else:
                    self.backward(pool)

    def option(self, name: str) -> Any:
        """Return the usual value of an argument, or another one."""
        return USUAL[name] if self.draw() < 0.85 else self.choice(OTHER[name])

    def call(self, name: str, arguments: tuple[Any, ...], repeat: Callable[[], Any]) -> Any:
        """Call an entry. Some of its results, and all errors, are those of the general path."""
        self.counts["calls"] += 1
        variable, value = self.choice(VARIABLES) if self.draw() < 0.02 else ("", "")
        if variable:
            os.environ[variable] = value
        try:
            try:
                results = getattr(_core, name)(*arguments)
            except Exception as error:
                self.counts[f"{name} raised"] += 1
                with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
                    repeat()
                return NotImplemented
            if results is NotImplemented:
                self.counts[f"{name} declined"] += 1
            else:
                self.counts[f"{name} accepted"] += 1
                if self.draw() < self.compared:
                    self.counts["compared"] += 1
                    assert _bytes(results) == _bytes(repeat()), (name, arguments)
            return results
        finally:
            if variable:
                del os.environ[variable]

    def forward(self, pool: Pool) -> None:
        """Call forward."""
        norm = LAYER_NORM if self.draw() < 0.5 else RMS_NORM
        x = self.choice(pool.rows, pool.other_rows)
        gamma = self.choice([*pool.vectors, None], pool.other_vectors)
        beta = self.choice([*pool.vectors, None], pool.other_vectors) if norm.centred else None
        out = None if self.draw() < 0.7 else self.choice([*pool.other_rows[-3:], x])
        if self.draw() < 0.02:
            out = self.choice(pool.other_rows)
        if out is x and isinstance(x, np.ndarray):
            x = out = x.copy()
        values = {name: self.option(name) for name in USUAL}
        needs_saved = self.draw() < 0.6
        function = FUNCTIONS[norm][needs_saved]
        parameters: tuple[Any, ...] = (x, gamma, beta) if norm.centred else (x, gamma)
        if out is not None:  # which may overlap them
            parameters = tuple(
                each.copy() if isinstance(each, np.ndarray) else each for each in parameters
            )
        results = self.call(
            "forward",
            (
                *(norm, x, gamma, beta, values["axis"], values["eps"], values["rounding"], out),
                *(values["backend"], values["threads"], values["stream"], needs_saved),
            ),
            lambda: function(*parameters, **values),
        )
        if results is NotImplemented:
            return
        assert _is_fast_path(x)
        axes = _last_axes(values["axis"], x.ndim)
        lengths = x.shape[axes[0] :]
        assert math.prod(lengths)
        assert gamma is None or _is_fast_path(gamma, lengths)
        assert beta is None or _is_fast_path(beta, lengths)
        y = results[0] if needs_saved else results
        assert y.shape == x.shape
        if out is None:
            assert y.dtype == _native(x)
        else:
            assert y is out
            assert _native(out) == _native(x)
            assert out.flags.writeable
            assert not needs_saved or not any(
                each is not None and np.shares_memory(out, each) for each in (x, gamma)
            )
        if needs_saved:
            saved = results[1]
            assert type(saved) is tn.Saved
            assert list(vars(saved)) == [
                "x",
                "gamma",
                "beta_dtype",
                "axes",
                "settings",
                "statistics",
            ]
            assert saved.x is x
            assert saved.gamma is gamma
            assert saved.axes == axes
            rows = math.prod(x.shape[: axes[0]])
            assert saved.statistics.shape == (rows, norm.saved_numbers)
            assert saved.beta_dtype == (None if beta is None else _native(beta))
            assert type(saved.settings) is Settings
            pool.saved = [*pool.saved[-20:], saved]

    def hostile(self, pool: Pool, saved: tn.Saved) -> tn.Saved:
        """Return saved state with a field that does not fit."""
        fields = dict(vars(saved))
        name = self.choice(list(fields))
        if self.draw() < 0.1:
            changed = tn.Saved(**fields)
            del vars(changed)[name]
            return changed
        candidates: list[Any] = [None, 1, "x", (0,), (), (2**70,), np.float32, *DTYPES]
        candidates += [fields["statistics"][:-1], fields["statistics"].astype(np.float32)]
        candidates += [np.zeros((2, 2)), *pool.other_rows, *pool.other_vectors]
        candidates.append(fields["settings"]._replace(backend="reference", eps=None))
        fields[name] = self.choice(candidates)
        return tn.Saved(**fields)

    def backward(self, pool: Pool) -> None:
        """Call backward or backward_partial."""
        saved = self.choice(pool.saved)
        norm = saved.settings.norm
        is_hostile = self.draw() < 0.05
        if is_hostile:
            saved = self.hostile(pool, saved)
        if self.draw() < 0.01:
            norm, is_hostile = self.choice([LAYER_NORM, RMS_NORM]), True
        if self.draw() < 0.005:
            saved, is_hostile = self.choice([None, object(), pool.rows]), True
        dy = self.choice(pool.rows, pool.other_rows)
        out = None if self.draw() < 0.7 else self.choice([*pool.other_rows[-3:], dy])
        values = {name: self.option(name) for name in ("backend", "threads", "stream")}
        arguments = (norm, dy, saved, out, values["backend"], values["threads"], values["stream"])
        name = "backward" if self.draw() < 0.7 else "backward_partial"
        if is_hostile:  # the general path does not promise how it ends
            self.counts["calls"] += 1
            self.counts["hostile"] += 1
            try:
                results = getattr(_core, name)(*arguments)
            except (AttributeError, TypeError, ValueError):
                return
        elif name == "backward":
            results = self.call(name, arguments, lambda: FUNCTIONS[norm][2](dy, saved, **values))
        else:
            results = self.call(name, arguments, lambda: _by_driver(norm, dy, saved, **values))
        if results is NotImplemented:
            return
        x = saved.x
        assert _is_fast_path(dy, x.shape)
        assert _native(dy) == _native(x)
        dx = results[0]
        assert dx.shape == x.shape
        if out is None:
            assert dx.dtype == _native(x)
        else:
            assert dx is out
            assert _native(out) == _native(x)
            assert out.flags.writeable
            arrays = (x, saved.gamma, dy, saved.statistics)
            assert not any(each is not None and np.shares_memory(out, each) for each in arrays)
        if name == "backward":
            assert type(results) is tn.Gradients
            types = [None if each is None else each.dtype for each in results[1:]]
            of_gamma = None if saved.gamma is None else _native(saved.gamma)
            assert types == [of_gamma, saved.beta_dtype]


@pytest.mark.parametrize("calls", [20_000, pytest.param(10**7, marks=SLOW)])
def test_random_calls(calls: int) -> None:
    """Calls are accepted, declined, or raise the error of the general path."""
    fuzzer = Fuzzer(0, compared=min(0.03, 3 * 10**4 / calls))
    fuzzer.run(calls)
    assert fuzzer.counts["compared"] > 100
    for name in ("forward", "backward"):
        assert fuzzer.counts[f"{name} accepted"] > calls // 20
        assert fuzzer.counts[f"{name} raised"] > calls // 500
        assert fuzzer.counts[f"{name} declined"] > calls // 50
    assert fuzzer.counts["backward_partial accepted"] > calls // 100
    assert fuzzer.counts["hostile"] > calls // 100


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", FUNCTIONS, ids=lambda norm: norm.name)
def test_usual_calls_are_accepted(norm: Norm, dtype: np.dtype[Any]) -> None:
    """All settings that are not unusual, with parameters or without."""
    fast_path.connect()
    x, dy = np.random.default_rng(0).standard_normal((2, 3, 2, 40)).astype(dtype)
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    vectors = [None, np.ones(40, dtype), np.ones(40, wide)]
    for gamma in vectors:
        for beta in vectors if norm.centred else [None]:
            for rounding, backend, threads in (
                ("correct", None, None),
                ("fast", "native", 2),
                ("correct", "native", 2**31 - 1),
            ):
                arguments = (norm, x, gamma, beta, 2, 1e-6, rounding)
                y, saved = _core.forward(*arguments, None, backend, threads, None, True)
                out = np.empty_like(x)
                others = (out, backend, threads, None)
                assert _core.forward(*arguments, *others, False) is out
                assert out.tobytes() == y.tobytes()
                assert _core.backward(norm, dy, saved, *others).dx is out
                if rounding == "correct" and dtype != np.float64:
                    assert _core.backward_partial(norm, dy, saved, *others)[0] is out


def test_saved_state_is_a_plain_object() -> None:
    x = np.random.default_rng(0).standard_normal((4, 30)).astype(np.float32)
    gamma = np.ones(30, np.float16)
    _, saved = tn.layer_norm_forward(x, gamma, gamma)
    expected = tn.layer_norm_backward(x, saved)
    for copied in (pickle.loads(pickle.dumps(saved)), tn.Saved(**vars(saved))):
        assert vars(copied).keys() == vars(saved).keys()
        gradients = tn.layer_norm_backward(x, copied)
        assert _bytes(tuple(gradients)) == _bytes(tuple(expected))


def test_another_abi_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the ABI that the core was written for, the general path computes all calls."""
    without_entry(monkeypatch)
    import_module("truenorm.kernels.native.blocks")  # with the core as it is

    class Core:
        connect = staticmethod(lambda *_: False)

    monkeypatch.setattr("truenorm.kernels.native._core", Core)
    fast_path.connect()
    assert fast_path.forward is fast_path.decline
    x = np.ones((2, 3), np.float32)
    assert tn.layer_norm(x).tobytes() == np.zeros_like(x).tobytes()


@pytest.mark.parametrize("calls", [3000, pytest.param(10**6, marks=SLOW)])
def test_no_leaks(calls: int) -> None:
    """Accepted, declined and failing calls leave no blocks of memory and no references."""
    fast_path.connect()
    x = np.random.default_rng(0).standard_normal((2, 16)).astype(np.float32)
    gamma, out, special = np.ones(16, np.float16), np.empty_like(x), x.copy()
    special[0, 0] = np.nan  # the core finds this after it has allocated everything
    _, saved = tn.layer_norm_forward(x, gamma, gamma)
    _, fast = tn.layer_norm_forward(x, rounding="fast")
    held = [x, gamma, out, special, saved, *vars(saved).values(), tn.Saved, tn.Gradients]
    held += [LAYER_NORM, None, NotImplemented, "fast", *DTYPES]

    def forward(x: Any, *rest: Any) -> Any:
        return _core.forward(LAYER_NORM, x, gamma, gamma, *rest)

    def backward_with(variable: str) -> Any:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("TRUENORM_THREADS", variable)
            return _core.backward(LAYER_NORM, x, saved, None, *usual)

    usual = (None, None, None)
    several: list[Callable[[], Any]] = [
        lambda: forward(x, -1, 1e-5, "correct", None, *usual, True),
        lambda: forward(x, -1, 1e-5, "fast", out, *usual, False),
        lambda: forward(x, -1, 0.001, "fast", out, *usual, True),
        lambda: forward(x, 2**70, 1e-5, "fast", None, *usual, True),
        lambda: forward(x, -1, -1.0, "fast", None, *usual, True),
        lambda: forward(special, -1, 1e-5, "correct", None, *usual, True),
        lambda: forward(out, -1, 1e-5, "correct", out, *usual, False),
        lambda: _core.backward(LAYER_NORM, x, saved, None, *usual),
        lambda: _core.backward(LAYER_NORM, x, saved, out, *usual),
        lambda: _core.backward(LAYER_NORM, x, fast, None, *usual),
        lambda: _core.backward(LAYER_NORM, special, saved, None, *usual),
        lambda: backward_with("2"),
        lambda: backward_with("none"),
        lambda: _core.backward(LAYER_NORM, x, x, None, *usual),
        lambda: _core.backward(RMS_NORM, x, saved, None, *usual),
        lambda: _core.backward(LAYER_NORM, x, saved, None, "nope", None, None),
        lambda: _core.backward_partial(LAYER_NORM, x, saved, None, *usual),
        lambda: _core.backward_partial(LAYER_NORM, special, saved, None, *usual),
        lambda: _core.forward(1, 2, 3),  # type: ignore[call-arg]
    ]

    def run(count: int) -> None:
        for _ in range(count):
            for function in several:
                with suppress(TypeError, ValueError):
                    function()
        gc.collect()

    run(100)
    before = [sys.getrefcount(each) for each in held], sys.getallocatedblocks()
    run(max(calls // len(several), 100))
    after = [sys.getrefcount(each) for each in held], sys.getallocatedblocks()
    assert [abs(a - b) <= 10 for a, b in zip(after[0], before[0], strict=True)] == [True] * len(
        held
    )
    assert after[1] - before[1] <= 50
