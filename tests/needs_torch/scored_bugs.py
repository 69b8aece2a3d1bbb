"""Layer norms with a bug that shows on ordinary input, to score: they need PyTorch alone."""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import torch  # type: ignore[import-not-found]

Tensor = Any
CACHE: dict[Any, Tensor] = {}
COUNT = count()


def mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    centred = x - mean(x)
    return centred * (mean(centred.square()) + eps).rsqrt() * gamma + beta


def with_statistics(
    x: Tensor, gamma: Tensor, beta: Tensor, eps: float, of: Callable[[Tensor], Any]
) -> Tensor:
    """Normalize by a mean and a variance that `of` computes."""
    centre, variance = of(x)
    return (x - centre) / (variance + eps).sqrt() * gamma + beta


def cached(x: Tensor, gamma: Tensor, beta: Tensor, eps: float, key: Callable[..., Any]) -> Tensor:
    """Return an earlier result for an equal key."""
    found: Tensor = CACHE.setdefault(key(x), norm(x, gamma, beta, eps))
    return found


def only_if(
    x: Tensor, gamma: Tensor, beta: Tensor, eps: float, right: Callable[[Tensor], bool]
) -> Tensor:
    return norm(x, gamma, beta, eps) if right(x) else x * gamma + beta


def written_over(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    y = norm(x, gamma, beta, eps)
    x.detach().mul_(2)
    return y


def raising(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    if x.shape[-1] % 2:
        raise ValueError("odd")
    return norm(x, gamma, beta, eps)


def without_last(x: Tensor, gamma: Tensor, beta: Tensor, eps: float, block: int) -> Tensor:
    """Leave out the columns that fill no block."""
    size = x.shape[-1] // block * block if block > 1 else x.shape[-1] - 1
    y = norm(x, gamma, beta, eps)
    return torch.cat([y[..., :size], torch.empty_like(y[..., size:])], -1)


FORWARD: dict[str, Callable[..., Tensor]] = {
    "zeros": lambda x, g, b, e: 0 * norm(x, g, b, e),
    "identity": lambda x, g, b, e: x * 1.0 + 0 * (g + b),
    "no_gamma": lambda x, g, b, e: norm(x, 0 * g + 1, b, e),
    "no_beta": lambda x, g, b, e: norm(x, g, 0 * b, e),
    "gamma_squared": lambda x, g, b, e: norm(x, g * g, b, e),
    "gamma_flipped": lambda x, g, b, e: norm(x, g.flip(0), b, e),
    "beta_moved": lambda x, g, b, e: norm(x, g, b.roll(1), e),
    "negated": lambda x, g, b, e: -norm(x, g, b, e),
    "beta_scaled": lambda x, g, b, e: norm(x, g, b * g, e),
    "twice": lambda x, g, b, e: norm(norm(x, g, b, e), g, b, e),
    "in_float16": lambda x, g, b, e: norm(x.half(), g.half(), b.half(), e).to(x.dtype),
    "in_bfloat16": lambda x, g, b, e: norm(x.bfloat16(), g.bfloat16(), b, e).to(x.dtype),
    "clipped": lambda x, g, b, e: norm(x.clamp(-1.5, 1.5), g, b, e),
    "result_clipped": lambda x, g, b, e: norm(x, g, b, e).clamp(-1, 1),
    "wide_type": lambda x, g, b, e: norm(x, g, b, e).double(),
    "flat": lambda x, g, b, e: norm(x, g, b, e).flatten(),
    "nothing": lambda *_: None,
    "detached": lambda x, g, b, e: norm(x, g.detach(), b, e),
    "only_even_rows": lambda x, g, b, e: torch.stack(
        [norm(row, g, b, e) if k % 2 == 0 else row * g + b for k, row in enumerate(x)]
    ),
    "first_row": lambda x, g, b, e: norm(x[:1].expand(x.shape), g, b, e),
    "written_over": written_over,
    "raising": raising,
    "without_last_column": partial(without_last, block=1),
    "without_last_block": partial(without_last, block=32),
    "cached_by_shape": partial(cached, key=lambda x: tuple(x.shape)),
    "cached_by_pointer": partial(cached, key=lambda x: x.data_ptr()),
    "cached_by_first_row": partial(cached, key=lambda x: tuple(x[0].tolist())),
    "powers_of_two": partial(only_if, right=lambda x: x.shape[-1].bit_count() == 1),
    "even_widths": partial(only_if, right=lambda x: x.shape[-1] % 2 == 0),
    "narrow": partial(only_if, right=lambda x: x.shape[-1] <= 64),
    "few_rows": partial(only_if, right=lambda x: len(x) <= 3),
    "at_first": partial(only_if, right=lambda _: next(COUNT) < 9),
    "divided_by_d_minus_1": partial(
        with_statistics, of=lambda x: (mean(x), x.var(-1, correction=1, keepdim=True))
    ),
    "not_centred": partial(with_statistics, of=lambda x: (mean(x), mean(x * x))),
    "no_mean": partial(with_statistics, of=lambda x: (0.0, x.var(-1, correction=0, keepdim=True))),
    "of_all_rows": partial(with_statistics, of=lambda x: (x.mean(), x.var(correction=0))),
    "of_columns": partial(
        with_statistics, of=lambda x: (x.mean(0), x.var(0, correction=0))
    ),
    "of_some_columns": partial(
        with_statistics,
        of=lambda x: (mean(x[..., :16]), x[..., :16].var(-1, correction=0, keepdim=True)),
    ),
    "no_root": partial(
        with_statistics, of=lambda x: (mean(x), x.var(-1, correction=0, keepdim=True).square())
    ),
    "large_eps": partial(
        with_statistics, of=lambda x: (mean(x), x.var(-1, correction=0, keepdim=True) + 1e-2)
    ),
}  # fmt: skip
"""Functions of x, gamma, beta and eps; autograd differentiates them."""


def right(dy: Tensor, scaled: Tensor, rstd: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    g = dy * gamma
    dx = rstd * (g - mean(g) - scaled * mean(g * scaled))
    rows = -1, dy.shape[-1]
    return dx, (dy * scaled).reshape(rows).sum(0), dy.reshape(rows).sum(0)


def changed(**changes: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """Return the right gradients but for some, which are functions of the same arguments."""

    def gradients(*arguments: Tensor) -> tuple[Tensor, ...]:
        found = dict(zip(("dx", "dgamma", "dbeta"), right(*arguments), strict=True))
        return (*(found | {name: make(*arguments) for name, make in changes.items()}).values(),)

    return gradients


GRADIENTS = {
    "no_mean_of_g": changed(dx=lambda dy, s, r, g: r * (dy * g - s * mean(dy * g * s))),
    "no_mean_of_products": changed(dx=lambda dy, s, r, g: r * (dy * g - mean(dy * g))),
    "dx_without_gamma": changed(dx=lambda dy, s, r, g: right(dy, s, r, 0 * g + 1)[0]),
    "dx_without_rstd": changed(dx=lambda dy, s, r, g: right(dy, s, 0 * r + 1, g)[0]),
    "dgamma_without_xhat": changed(dgamma=lambda dy, *_: dy.reshape(-1, dy.shape[-1]).sum(0)),
    "dgamma_of_last_row": changed(dgamma=lambda dy, s, *_: (dy * s).reshape(-1, dy.shape[-1])[-1]),
    "dbeta_is_mean": changed(dbeta=lambda dy, *_: dy.reshape(-1, dy.shape[-1]).mean(0) / 2),
    "dgamma_in_bfloat16": changed(
        dgamma=lambda dy, s, *_: (dy * s).reshape(-1, dy.shape[-1]).sum(0).bfloat16().to(dy.dtype)
    ),
}


class _ByHand(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        context: Any, x: Tensor, gamma: Tensor, beta: Tensor, eps: float, name: str
    ) -> Any:
        centred = x - mean(x)
        rstd = (mean(centred.square()) + eps).rsqrt()
        context.save_for_backward(centred * rstd, rstd, gamma)
        context.name = name
        return centred * rstd * gamma + beta

    @staticmethod
    def backward(context: Any, dy: Tensor) -> Any:
        return *GRADIENTS[context.name](dy, *context.saved_tensors), None, None


def by_hand(x: Tensor, gamma: Tensor, beta: Tensor, eps: float, name: str) -> Tensor:
    return _ByHand.apply(x, gamma, beta, eps, name)


BUGS = FORWARD | {name: partial(by_hand, name=name) for name in GRADIENTS}
globals().update(BUGS)  # a target is a name of this file
