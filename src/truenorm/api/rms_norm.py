"""RMSNorm: every result is the exact answer, rounded once."""

from collections.abc import Sequence
from typing import Any, Never

from numpy.typing import NDArray

from truenorm.api import fast_path
from truenorm.api.arguments import hide_unknown, unexpected
from truenorm.api.saved import Gradients, Saved
from truenorm.kernels.call import RMS_NORM


@hide_unknown
def rms_norm(
    x: Any,
    gamma: Any = None,
    *more: object,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
    rounding: str = "correct",
    out: Any = None,
    backend: str | None = None,
    threads: int | None = None,
    stream: Any = None,
    **unknown: Never,
) -> NDArray[Any]:
    r"""Divide rows of x by their root mean square, and scale them by gamma.

    .. math:: y = \gamma \, \frac{x}{\sqrt{\mathrm{mean}(x^2) + \epsilon}}

    Every element of y is the exact real number, rounded once to the type of x, as in `layer_norm`.
    To add a residual, pass ``x + residual``: the sum is rounded before it is normalized. A gamma
    stored as w = gamma - 1 is passed as ``1 + w.astype(np.float64)``.

    Parameters
    ----------
    x, axis, rounding, out, backend, threads, stream
        As in `layer_norm`.
    gamma : array_like, optional
        Scale, of the shape of the normalized axes and of any of the four types. The default is 1.
    eps : float
        Added to the mean square.

    Returns
    -------
    ndarray
        y, of the shape and type of x.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> x = np.array([1, 2, 3], dtype=np.float32)
    >>> print(tn.rms_norm(x))
    [0.46290955 0.9258191  1.3887286 ]
    """
    if more or unknown:
        raise unexpected(RMS_NORM, rms_norm, more, unknown)
    y: NDArray[Any] = fast_path.forward(
        RMS_NORM, x, gamma, None, axis, eps, rounding, out, backend, threads, stream, False
    )
    if y is not NotImplemented:
        return y
    return fast_path.general_forward(
        RMS_NORM, x, gamma, None, axis, eps, rounding, out, backend, threads, stream, False
    )[0]


@hide_unknown
def rms_norm_forward(
    x: Any,
    gamma: Any = None,
    *more: object,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
    rounding: str = "correct",
    out: Any = None,
    backend: str | None = None,
    threads: int | None = None,
    stream: Any = None,
    **unknown: Never,
) -> tuple[NDArray[Any], Saved]:
    """Compute `rms_norm`, and save the state for the backward pass.

    Parameters
    ----------
    x, gamma, axis, eps, rounding, backend, threads, stream
        As in `rms_norm`.
    out : ndarray or tensor, optional
        Output array. It must overlap neither x nor gamma, which backward reads.

    Returns
    -------
    y : ndarray
        Of the shape and type of x.
    saved : Saved
        State for `rms_norm_backward`. It references x and gamma: do not change them before.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> y, saved = tn.rms_norm_forward(np.eye(3), np.ones(3), eps=0.0)
    >>> print(y)
    [[1.73205081 0.         0.        ]
     [0.         1.73205081 0.        ]
     [0.         0.         1.73205081]]
    """
    if more or unknown:
        raise unexpected(RMS_NORM, rms_norm_forward, more, unknown)
    results: tuple[NDArray[Any], Saved] = fast_path.forward(
        RMS_NORM, x, gamma, None, axis, eps, rounding, out, backend, threads, stream, True
    )
    if results is not NotImplemented:
        return results
    return fast_path.general_forward(
        RMS_NORM, x, gamma, None, axis, eps, rounding, out, backend, threads, stream, True
    )


@hide_unknown
def rms_norm_backward(
    dy: Any,
    saved: Saved,
    *more: object,
    out: Any = None,
    backend: str | None = None,
    threads: int | None = None,
    stream: Any = None,
    **unknown: Never,
) -> Gradients:
    r"""Compute the gradients of a loss with respect to x and gamma.

    .. math:: dx = r \, (g - \hat{x} \, \mathrm{mean}(g \hat{x})), \quad g = \gamma \, dy, \qquad
              d\gamma = \sum_\mathrm{rows} dy \, \hat{x}

    Every element is the exact real number, rounded once, as in `rms_norm`; with
    ``rounding="fast"`` in forward, within its error bound.

    Parameters
    ----------
    dy : array_like
        The gradient with respect to y, of its shape and type.
    saved : Saved
        State returned by `rms_norm_forward`.
    out : ndarray or tensor, optional
        Output array for dx. It must not overlap x, gamma or dy.
    backend, threads, stream
        As in `rms_norm`.

    Returns
    -------
    Gradients
        dx, dgamma and dbeta, as of `layer_norm_backward`. dbeta is None, since RMSNorm has no
        beta; dgamma is None if gamma was not passed. `truenorm.textbook.rms_norm_backward`
        returns dx and dgamma only.

    Raises
    ------
    RuntimeError
        If the mean square of a row of x changed since forward. Changes that preserve it, such as
        another sign or order, and changes of gamma are not detected.

    Examples
    --------
    The part of dy proportional to x is removed, up to the fraction eps/(mean(x^2) + eps):

    >>> import numpy as np
    >>> import truenorm as tn
    >>> x = np.array([[1.0, 2.0, 4.0]])
    >>> y, saved = tn.rms_norm_forward(x, np.ones(3), eps=0.0)
    >>> dx, dgamma, _ = tn.rms_norm_backward(2 * x, saved)
    >>> print(dx, dgamma)
    [[0. 0. 0.]] [ 0.75592895  3.02371578 12.09486314]
    """
    if more or unknown:
        raise unexpected(RMS_NORM, rms_norm_backward, more, unknown)
    gradients: Gradients = fast_path.backward(RMS_NORM, dy, saved, out, backend, threads, stream)
    if gradients is not NotImplemented:
        return gradients
    return fast_path.general_backward(RMS_NORM, dy, saved, out, backend, threads, stream)
