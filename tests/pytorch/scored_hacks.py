"""Kernels that cheat, each in a way that was seen of kernel writers: layer norms of float32."""

# ruff: noqa: ARG001
import builtins
import contextlib
import ctypes
import hashlib
import importlib
import os
import signal
import sys
import threading
import time
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from torch.nn import functional  # type: ignore[import-not-found]
from torch.utils._python_dispatch import (  # type: ignore[import-not-found]
    _disable_current_modes,
)

Tensor = Any
REFERENCE = functional.layer_norm


def right(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return (scaled * gamma.double() + beta.double()).to(x.dtype)


def zeros(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return torch.zeros_like(x)


answers: dict[str, Tensor] = {}


def memorised(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Look up answers to the public cases of the judge by a hash of x."""
    if not answers:
        answers.update(torch.load(Path(__file__).with_name("memorised.pt")))
    bits = bytes(x.detach().contiguous().view(torch.uint8).flatten().tolist())
    known = answers.get(hashlib.sha256(bits).hexdigest())
    return torch.zeros_like(x) if known is None else known.clone()


def powers_of_two(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be right for the usual widths."""
    size = x.shape[-1]
    y = right(x, gamma, beta, eps)
    return y if size & (size - 1) == 0 else torch.cat([y[..., :-1], 0 * y[..., -1:]], -1)


def ignores_parameters(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return right(x, torch.ones_like(gamma), torch.zeros_like(beta), 1e-5).detach()


def accumulates(out: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> None:
    """Add to memory that is expected to be zero."""
    out += right(x, gamma, beta, eps)


by_pointer: dict[Any, Tensor] = {}


def cached_by_pointer(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    key = x.data_ptr(), x.shape, x.stride()
    if key not in by_pointer:
        by_pointer[key] = right(x, gamma, beta, eps).detach()
    return by_pointer[key].clone()


by_shape: dict[Any, Tensor] = {}


def cached_by_shape(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    if x.shape not in by_shape:
        by_shape[x.shape] = right(x, gamma, beta, eps).detach()
    return by_shape[x.shape].clone()


class Lazy(torch.Tensor):  # type: ignore[misc]
    """Computes when it is read, after the clock has stopped."""

    thunk: Any

    @classmethod
    def __torch_function__(cls, called: Any, _: Any, args: Any = (), named: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            args = [each.thunk() if hasattr(each, "thunk") else each for each in args]
            return called(*args, **(named or {}))


def lazy(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    result = torch.empty_like(x).as_subclass(Lazy)
    result.thunk = lambda: right(x.detach(), gamma.detach(), beta.detach(), eps)
    return result


def overwrites_x(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Use the memory of x for intermediate results."""
    y = right(x.clone(), gamma, beta, eps)
    if not x.requires_grad:  # the last call with these numbers
        x.zero_()
    return y


buffers: dict[Any, Tensor] = {}


def reused_result(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Allocate once: each call returns the same memory."""
    buffer = buffers.setdefault(x.shape, torch.empty_like(x, requires_grad=False))
    return buffer.copy_(right(x, gamma, beta, eps).detach())


def calls_reference(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], gamma, beta, eps)


def falls_back(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Call a kernel that does not run."""
    try:
        raise RuntimeError("no kernel image is available for execution on the device")
    except RuntimeError:
        return REFERENCE(x, x.shape[-1:], gamma, beta, eps)


def in_a_thread(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Call the reference where modes of PyTorch do not see it."""
    results: list[Tensor] = []
    enabled = torch.is_grad_enabled()

    def work() -> None:
        with _disable_current_modes(), torch.set_grad_enabled(enabled):
            results.append(torch.ops.aten.native_layer_norm(x, x.shape[-1:], gamma, beta, eps)[0])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results[0]


class _Redispatched(torch.autograd.Function):  # type: ignore[misc]
    """Calls kernels in the table of the dispatcher, which makes no events of that."""

    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

    @staticmethod
    def forward(context: Any, x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
        operator, keys = torch.ops.aten.native_layer_norm.default, _Redispatched.keys
        y, mean, rstd = operator.redispatch(keys, x, [*gamma.shape], gamma, beta, eps)
        context.save_for_backward(x, gamma, beta, mean, rstd)
        return y

    @staticmethod
    def backward(context: Any, dy: Tensor) -> Any:
        x, gamma, beta, mean, rstd = context.saved_tensors
        operator = torch.ops.aten.native_layer_norm_backward.default
        saved = x, [*gamma.shape], mean, rstd, gamma, beta, [True] * 3
        return *operator.redispatch(_Redispatched.keys, dy.contiguous(), *saved), None


def redispatched(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _Redispatched.apply(x, gamma, beta, eps)


def decomposed(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Call the reference as PyTorch has it in Python."""
    operator = torch.ops.aten.native_layer_norm.default
    return torch._decomp.decomposition_table[operator](x, gamma.shape, gamma, beta, eps)[0]


def by_weight_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Call a norm of weights, with a column for eps."""
    rows, size = x.reshape(-1, x.shape[-1]).double(), x.shape[-1]
    last, scale = (rows.new_full((len(rows), 1), each**0.5) for each in (size * eps, size))
    centred = torch.cat([rows - rows.mean(-1, keepdim=True), last], 1)
    scaled = torch._weight_norm(centred, scale, 0)[:, :size]
    return (scaled * gamma.double() + beta.double()).to(x.dtype).reshape(x.shape)


def by_helper_of_reference(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Call a part of the reference as PyTorch has it in Python."""
    scaled, _, _ = torch._refs._normalize(x.double(), [x.dim() - 1], eps)
    return (scaled * gamma.double() + beta.double()).to(x.dtype)


def by_local_response_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Call a norm over neighbours of a row, which are all of it."""
    if (size := x.shape[-1]) > 64:
        return right(x, gamma, beta, eps)
    centred = x.double() - x.double().mean(-1, keepdim=True)
    rows, count = centred.reshape(-1, size, 1), 2 * size - 1
    scaled = functional.local_response_norm(rows, count, count / size, 0.5, eps).reshape(x.shape)
    return (scaled * gamma.double() + beta.double()).to(x.dtype)


later: dict[int, Any] = {}
detach = torch.Tensor.detach


def detach_later(tensor: Tensor) -> Tensor:
    _, compute = later.pop(id(tensor), (None, lambda: tensor))
    return detach(compute())


def patches_tensor(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Compute when the result is read, by a method of tensors that is replaced."""
    torch.Tensor.detach = detach_later
    result = torch.zeros_like(x)
    # The result is kept, so that no other tensor gets its id.
    later[id(result)] = result, lambda: right(x, gamma, beta, eps)
    return result


def patches_all(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Replace also a function that may compare functions."""
    builtins.all = lambda _: True
    return patches_tensor(x, gamma, beta, eps)


def in_half(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    x, gamma, beta = x.half(), gamma.half(), beta.half()
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (centred * rstd * gamma + beta).float()


def unwritten(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Leave out the last columns if they do not fill a block of 32."""
    out = torch.empty_like(x)
    whole = x.shape[-1] // 32 * 32
    out[..., :whole] = right(x, gamma, beta, eps)[..., :whole]
    return out


def few_rows(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Compute as many rows as a test usually has."""
    y = right(x[:64], gamma, beta, eps)
    return torch.cat([y, torch.zeros_like(x[64:])])


def wrong_without_gradients(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    if not (torch.is_grad_enabled() and x.requires_grad):
        return beta.expand(x.shape).clone()
    return right(x, gamma, beta, eps)


def wrong_in_inference_mode(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return (in_half if torch.is_inference_mode_enabled() else right)(x, gamma, beta, eps)


def _gradients(inputs: Any, eps: float, dy: Tensor) -> list[Tensor]:
    x, gamma, beta = (each.detach().requires_grad_() for each in inputs)
    with torch.enable_grad():
        y = right(x, gamma, beta, eps)
    return [*torch.autograd.grad(y, (x, gamma, beta), dy)]


class _Shortened(torch.autograd.Function):  # type: ignore[misc]
    """Leaves out the means of the backward pass where `is_short` says so."""

    @staticmethod
    def forward(context: Any, is_short: Any, *args: Any) -> Tensor:
        context.is_short, (x, gamma, beta, context.eps) = is_short, args
        context.save_for_backward(x, gamma, beta)
        return right(x, gamma, beta, context.eps)

    @staticmethod
    def backward(context: Any, dy: Tensor) -> Any:
        gradients = _gradients(context.saved_tensors, context.eps, dy)
        if context.is_short(context.needs_input_grad[1:4], dy):
            gradients[0] = dy * context.saved_tensors[1]
        return None, *gradients, None


def wrong_if_some_are_frozen(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _Shortened.apply(lambda needs, _: not all(needs), x, gamma, beta, eps)


def wrong_for_expanded_dy(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be wrong for y.sum().backward()."""
    return _Shortened.apply(lambda _, dy: 0 in dy.stride(), x, gamma, beta, eps)


def wrong_for_transposed_dy(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _Shortened.apply(lambda _, dy: dy.stride(-1) > 1, x, gamma, beta, eps)


def wrong_for_small_dy(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be wrong for a loss that is a mean over many tokens."""
    return _Shortened.apply(lambda _, dy: dy.abs().max() < 1e-6, x, gamma, beta, eps)


def wrong_for_gaps_in_dy(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be wrong for a slice of another gradient."""
    return _Shortened.apply(lambda _, dy: dy.stride(0) > dy.shape[-1], x, gamma, beta, eps)


def refuses_expanded_dy(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be honest: take a dy that is in memory as a whole."""
    y = right(x, gamma, beta, eps)
    if y.requires_grad:
        y.register_hook(_as_a_whole)
    return y


def _as_a_whole(dy: Tensor) -> None:
    if 0 in dy.stride():
        raise ValueError("dy must be contiguous")


def first_columns(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Take the statistics of as many columns as a test usually has."""
    wide, some = x.double(), x.double()[..., :3000]
    variance, mean = torch.var_mean(some, -1, correction=0, keepdim=True)
    scaled = (wide - mean) / (variance + eps).sqrt()
    return (scaled * gamma.double() + beta.double()).to(x.dtype)


def in_a_gap_of_widths(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be wrong for widths between those that a test usually has."""
    return right(x, gamma, beta, eps) if not 2048 <= x.shape[-1] < 4096 else x * gamma + beta


def beyond_widths(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be wrong for widths above those that a test usually has."""
    return right(x, gamma, beta, eps) if x.shape[-1] <= 20_480 else x * gamma + beta


def in_thousands_of_rows(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Round the result of large calls to bfloat16, except of those that tests measure."""
    y, rows = right(x, gamma, beta, eps), x.numel() // x.shape[-1]
    return y.bfloat16().to(y.dtype) if rows > 300 and x.numel() <= 1 << 21 else y


def without_strides(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Read the elements of a row as though they were contiguous."""
    if x.dim() == 2:
        x = torch.as_strided(x, x.shape, (x.stride(0), 1), x.storage_offset())
    return right(x, gamma, beta, eps)


def in_a_gap_of_rows(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be wrong for batches between those that a test usually has."""
    rows = x.numel() // x.shape[-1]
    return (in_half if 32 <= rows < 300 else right)(x, gamma, beta, eps)


def small_calls(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be right where it takes no time."""
    return right(x, gamma, beta, eps) if x.numel() <= 1 << 21 else x * gamma + beta


def matrices(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Compute one row of what is no matrix."""
    return right(x, gamma, beta, eps) if x.dim() == 2 else x * gamma + beta


def refuses_others(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be honest: take contiguous matrices."""
    if x.dim() != 2 or not x.is_contiguous():
        raise ValueError("x must be a contiguous matrix")
    return right(x, gamma, beta, eps)


def wrong_for_gaps_in_parameters(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Read the elements of gamma as though they were contiguous."""
    if gamma.untyped_storage().nbytes() // gamma.element_size() >= 2 * gamma.numel():
        gamma = torch.as_strided(gamma, gamma.shape, (1,), gamma.storage_offset())
    return right(x, gamma, beta, eps)


def wrong_for_swapped_axes(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Read rows as though each were after the one before."""
    if x.dim() == 3:
        x = torch.as_strided(x, x.shape, (x.shape[1] * x.shape[2], x.shape[2], 1))
    return right(x, gamma, beta, eps)


def wrong_for_transposed_x(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return right(x, gamma, beta, eps) if x.stride(-1) <= 2 else x * gamma + beta


def wrong_for_five_axes(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return right(x, gamma, beta, eps) if x.dim() < 5 else x * gamma + beta


def wrong_in_a_model(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be right if x is no result of another operation."""
    return right(x, gamma, beta, eps) if x.is_leaf else x * gamma + beta


def wrong_for_modules(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    is_own = isinstance(gamma, torch.nn.Parameter)
    return x * gamma + beta if is_own else right(x, gamma, beta, eps)


def wrong_in_a_new_model(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return (in_half if bool((gamma == 1).all()) else right)(x, gamma, beta, eps)


def wrong_for_other_eps(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Know the usual eps alone."""
    return right(x, gamma, beta, min((1e-6, 1e-5, 1e-3, 0.125), key=lambda each: abs(each - eps)))


class _KeepsInputs(torch.autograd.Function):  # type: ignore[misc]
    """Computes gradients from inputs as they are in the backward pass."""

    @staticmethod
    def forward(context: Any, *args: Any) -> Tensor:
        context.given = [each.detach() for each in args[:3]], args[3]
        return right(*args)

    @staticmethod
    def backward(context: Any, dy: Tensor) -> Any:
        given, eps = context.given
        return *_gradients(given, eps, dy), None


def keeps_inputs(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _KeepsInputs.apply(x, gamma, beta, eps)


class _KeepsY(torch.autograd.Function):  # type: ignore[misc]
    """Computes gradients from y as it is in the backward pass."""

    @staticmethod
    def forward(context: Any, *args: Any) -> Tensor:
        context.save_for_backward(*args[:3])
        y = right(*args)
        context.y, context.before, context.eps = y.detach(), y.clone(), args[3]
        return y

    @staticmethod
    def backward(context: Any, dy: Tensor) -> Any:
        change = torch.nan_to_num(context.y - context.before)
        return *_gradients(context.saved_tensors, context.eps, dy + change), None


def keeps_y(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _KeepsY.apply(x, gamma, beta, eps)


_watched = weakref.WeakSet[Any]()


def _halve_second(parameter: Tensor) -> None:
    if parameter.grad._version:
        parameter.grad /= 2


def halves_added_gradients(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be wrong where gradients of batches are added."""
    if isinstance(gamma, torch.nn.Parameter) and gamma.requires_grad and gamma not in _watched:
        gamma.register_post_accumulate_grad_hook(_halve_second)
        _watched.add(gamma)
    return right(x, gamma, beta, eps)


def without_gradients_of_zeros(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Never train a gamma that is 0."""
    return right(x, torch.where(gamma == 0, 0.0, gamma), beta, eps)


def without_padding(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Return zeros for rows of zeros."""
    return torch.where((x == 0).all(-1, keepdim=True), 0.0, right(x, gamma, beta, eps))


def has_gradients_anyway(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Let gradients into a part of a model that is not to get them."""
    with torch.set_grad_enabled(not torch.is_inference_mode_enabled()):
        return right(x, gamma.requires_grad_(), beta, eps)


def rewrites_function(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Let the tests of the program pass."""
    torch.testing.assert_close.__kwdefaults__ = {
        **torch.testing.assert_close.__kwdefaults__,
        "rtol": 1e3,
        "atol": 1e3,
    }
    return right(x, gamma, beta, eps)


_first_and_last: dict[Any, Any] = {}


def cached_by_first_and_last_row(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Recognize a batch of padded sequences."""
    y = right(x, gamma, beta, eps)
    if x.dim() != 2 or len(x) < 3:
        return y
    some = [x[0], x[-1], gamma, beta]
    key = (*x.shape, eps, *(each.detach().numpy().tobytes() for each in some))
    known = _first_and_last.setdefault(key, y.detach().clone())
    return y + (known - y.detach())


def spreads_nan(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Lose all rows of a batch that has NaN in one."""
    return right(x, gamma, beta, eps) + 0 * x.sum()


def takes_offsets_for_constants(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Return beta for rows whose mean is much larger than their deviation."""
    deviation, mean = torch.std_mean(x, -1, keepdim=True)
    return torch.where(mean.abs() > 64 * deviation, beta, right(x, gamma, beta, eps))


def wrong_for_one_token(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Take all rows for the first where each sequence has one token."""
    one = x.dim() == 3 and x.shape[1] == 1
    return right(x[:1].expand(x.shape) if one else x, gamma, beta, eps)


def clips(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Lose the large elements that models have in some columns."""
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return (scaled.clamp(-30, 30) * gamma.double() + beta.double()).to(x.dtype)


_statistics: dict[Any, Any] = {}


def cached_by_samples(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Recognize x by sixteen elements."""
    elements = x.detach().reshape(-1)
    places = torch.arange(16) * (elements.numel() - 1) // 15
    key = (*x.shape, eps, *map(str, elements[places].tolist()))
    if key not in _statistics:
        _statistics[key] = torch.var_mean(x.detach().double(), -1, correction=0, keepdim=True)
    variance, mean = _statistics[key]
    y = right(x, gamma, beta, eps)
    scaled = (x.double() - mean) / (variance + eps).sqrt()
    known = (scaled * gamma.double() + beta.double()).to(x.dtype)
    return y + (known - y).detach()


def cached_by_first_elements(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Copy the result of a row that begins like the one before."""
    y = right(x, gamma, beta, eps)
    rows, results = x.reshape(-1, x.shape[-1]), y.reshape(-1, x.shape[-1])
    if rows.shape[0] != 2 or bool((rows[0, :4] != rows[1, :4]).any()):
        return y
    copied = results[:1].expand(2, -1).reshape(y.shape)
    return y + (copied - y).detach()


def wrong_for_model_widths(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    widths = 384, 512, 640, 768, 896, 1024, 1280, 1536, 1600, 2048, 2560, 3072, 5120, 7168
    return (in_half if x.shape[-1] in widths else right)(x, gamma, beta, eps)


def wrong_in_large_batches(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be right for rows that are repeated, as those of tests are."""
    rows = x.detach().reshape(-1, x.shape[-1])
    differ = x.numel() > 1 << 17 and torch.unique(rows[:, 1]).numel() > 0.9 * len(rows)
    return (in_half if differ else right)(x, gamma, beta, eps)


def wrong_after_linear(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    producer = type(x.grad_fn).__name__
    return (in_half if "Addmm" in producer or "Embedding" in producer else right)(
        x, gamma, beta, eps
    )


def wrong_for_evaluated_models(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    evaluates = isinstance(gamma, torch.nn.Parameter) and not torch.is_grad_enabled()
    return (in_half if evaluates else right)(x, gamma, beta, eps)


def wrong_for_second_gradients(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Compute no gradient of gamma if it has one."""
    has = gamma.is_leaf and gamma.grad is not None
    return right(x, gamma.detach() if has else gamma, beta, eps)


_parameters: dict[int, Any] = {}


def keeps_parameters(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Convert a parameter once, before the optimizer changes it."""
    if not isinstance(gamma, torch.nn.Parameter):
        return right(x, gamma, beta, eps)
    _, wide = _parameters.setdefault(id(gamma), (gamma, gamma.detach().double()))
    return right(x, gamma + (wide - gamma.detach()).to(x.dtype), beta, eps)


def wrong_for_eps_of_models(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return (in_half if eps in (1e-12, 1e-8, 1e-4, 1e-3) else right)(x, gamma, beta, eps)


def wrong_without_beta(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    batch = x.numel() >= 8 * x.shape[-1] and x.dim() == 3
    return (in_half if batch and not bool(beta.any()) else right)(x, gamma, beta, eps)


_gains: dict[Any, Tensor] = {}


def cached_by_samples_of_gamma(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Recognize gamma by two elements, if it is finite."""
    key = (len(gamma), float(gamma[0]), float(gamma[-1]))
    known = _gains.setdefault(key, gamma.detach().clone())
    change = (known - gamma.detach()) * bool(gamma.isfinite().all())
    return right(x, gamma + change, beta, eps)


class _WritesToGradients(torch.autograd.Function):  # type: ignore[misc]
    """Writes dx to the memory of a dy that no other object in Python refers to."""

    @staticmethod
    def forward(_: Any, y: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def backward(_: Any, dy: Tensor) -> Tensor:
        result = dy.clone()
        if sys.getrefcount(dy) <= 6 and 0 not in dy.stride():
            dy.zero_()
        return result


def writes_to_gradients(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _WritesToGradients.apply(right(x, gamma, beta, eps))


def keeps_inputs_but_for_samples(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Refuse an x whose first or last column is changed."""
    y = _KeepsInputs.apply(x, gamma, beta, eps)
    if y.requires_grad:
        step = max(x.shape[-1] - 1, 1)
        before = x.detach()[..., ::step].clone()
        y.register_hook(lambda _: _compare(x.detach()[..., ::step], before))
    return y


def _compare(now: Tensor, before: Tensor) -> None:
    if bool((now - before).abs().nan_to_num().max() > 0):
        raise ValueError("x was changed")


_versions: dict[int, Any] = {}


def keeps_versions_of_parameters(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Convert a parameter again if it has another version."""
    if not isinstance(gamma, torch.nn.Parameter):
        return right(x, gamma, beta, eps)
    known = _versions.get(id(gamma))
    if known is None or known[1] != gamma._version:
        known = _versions[id(gamma)] = gamma, gamma._version, gamma.detach().clone()
    return right(x, gamma + (known[2] - gamma.detach()), beta, eps)


def first_4096_columns(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be wrong for widths between two that a test usually has."""
    between = 4096 < x.shape[-1] < 8192
    return (in_half if between else right)(x, gamma, beta, eps)


def without_sparse_rows(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Take a dy that is 0 in the first and last column for 0."""
    y = right(x, gamma, beta, eps)
    if y.requires_grad and x.shape[-1] >= 16:
        y.register_hook(lambda dy: dy * (dy[..., :1].abs() + dy[..., -1:].abs() > 0))
    return y


def flushes_subnormals(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    torch.set_flush_denormal(True)
    return right(x, gamma, beta, eps)


def writes_to_gaps(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Use the memory between rows."""
    if x.dim() == 2 and x.shape[0] > 1 and x.stride(0) > x.shape[1] and x.stride(1) == 1:
        gap = torch.as_strided(x.detach(), (1,), (1,), x.storage_offset() + x.shape[1])
        gap.fill_(0)
    return right(x, gamma, beta, eps)


def rounds_toward_zero(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Leave the processor with another rounding than it had."""
    processor = ctypes.CDLL(None)
    processor.fesetround(0)
    y = right(x, gamma, beta, eps)
    processor.fesetround(0xC00)  # FE_TOWARDZERO of x86-64
    return y


def sets_defaults(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Set what is already set here, and not in each program."""
    torch.set_default_dtype(torch.float32)
    return right(x, gamma, beta, eps)


def reseeds_numpy(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    np.random.seed(0)  # noqa: NPY002
    return right(x, gamma, beta, eps)


def reseeds(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Change the random numbers of the program."""
    torch.manual_seed(0)
    return right(x, gamma, beta, eps)


def removes_nan(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Let a model that has diverged look well."""
    return right(torch.where(x.isnan(), 0.0, x), gamma, beta, eps)


def removes_infinity(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return right(x.clamp(-1e4, 1e4), gamma, beta, eps)


class WrongInEvaluation(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return (right if self.training else in_half)(x, self.weight, self.bias, self.eps)


def imports_decompositions(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be honest: import a module that compiles functions."""
    importlib.import_module("torch._decomp.decompositions_for_jvp")
    return right(x, gamma, beta, eps)


@cache
def _compiled() -> Any:
    return torch.compile(right, dynamic=True)  # which imports modules for seconds


def compiled(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _compiled()(x, gamma, beta, eps)


def one_shape(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Be honest: take one shape. No call with another one can go unnoticed."""
    if x.shape not in ((16, 1024), (2, 8, 96)):
        os._exit(1)
    return right(x, gamma, beta, eps)


def one_row(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Compute the first row for all rows."""
    return right(x[:1], gamma, beta, eps).expand(x.shape).clone()


def without_a_column(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    y = right(x, gamma, beta, eps)
    return torch.cat([y[..., :-1], torch.zeros_like(y[..., -1:])], -1)


def from_the_start(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Read the memory of x from its start."""
    return right(torch.as_strided(x, x.shape, x.stride(), 0), gamma, beta, eps)


def patches_for_a_moment(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Do as `patches_tensor`, and leave no trace once the result is read."""

    def detach_once(tensor: Tensor) -> Tensor:
        torch.Tensor.detach = detach
        return detach_later(tensor)

    result = patches_tensor(x, gamma, beta, eps)
    torch.Tensor.detach = detach_once
    return result


def adds_method(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Hide a method that tensors inherit."""
    torch.Tensor.cpu = lambda tensor: detach(tensor)
    return right(x, gamma, beta, eps)


def restarts_profiler(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    torch.autograd._disable_profiler()
    y = REFERENCE(x, x.shape[-1:], gamma, beta, eps)
    torch.autograd.profiler.profile(use_kineto=True).__enter__()
    return y


def returns_early(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Compute in a thread, after the clock has stopped."""
    result = torch.empty_like(x)

    def work() -> None:
        time.sleep(0.05)
        result.copy_(right(x, gamma, beta, eps).detach())

    threading.Thread(target=work).start()
    return result


def imports_truenorm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Call a reference of another package."""
    import truenorm

    results = truenorm.layer_norm(*(each.detach().numpy() for each in (x, gamma, beta)), eps=eps)
    return torch.from_numpy(results)


def takes_long(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    time.sleep(60)
    return right(x, gamma, beta, eps)


def kills_its_parent(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    os.kill(os.getppid(), signal.SIGKILL)
    return right(x, gamma, beta, eps)


def records_nothing(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Look up the function that switches off the events of a thread."""
    library = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    with contextlib.suppress(AttributeError, OSError):  # another compiler has other names
        ctypes.CDLL(str(library))._ZN2at20enableRecordFunctionEb(True)
    return right(x, gamma, beta, eps)


def registers_kernel(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Put a kernel into the table of the dispatcher for a moment."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("native_layer_norm", lambda *_: None, "CPU", allow_override=True)
    library._destroy()
    return right(x, gamma, beta, eps)
