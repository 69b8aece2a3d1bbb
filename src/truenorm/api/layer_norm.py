"""Layer normalization: every result is the exact answer, rounded once."""

from collections.abc import Sequence
from typing import Any, Never

from numpy.typing import NDArray

from truenorm.api import fast_path
from truenorm.api.arguments import hide_unknown, unexpected
from truenorm.api.saved import Gradients, Saved
from truenorm.kernels.call import LAYER_NORM


@hide_unknown
def layer_norm(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
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
    r"""Normalize rows of x, scale them by gamma and shift them by beta.

    .. math:: y = \gamma \, \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} + \beta

    Every element of y is the exact real number, rounded once to the type of x, to nearest, ties to
    even. Its bits do not depend on the rest of the batch, the layout, the backend or the machine.

    Parameters
    ----------
    x : array_like
        float16, bfloat16, float32 or float64, of any rank, strides and byte order. Arrays of other
        libraries are read through DLPack if they are on the CPU. An array on a device, of at most
        float32, is normalized there, and the result is an array of the same library.
    gamma, beta : array_like, optional
        Scale and shift, of the shape of the normalized axes and of any of the four types. The
        defaults are 1 and 0.
    axis : int or tuple of int
        The normalized axes, as in NumPy.
    eps : float
        Added to the variance.
    rounding : {"correct", "fast"}
        "fast" trades the last bit for speed, within the bound of docs/inside/error-analysis.md.
        The environment variable TRUENORM_ROUNDING overrides it.
    out : ndarray or tensor, optional
        Output array, which is returned: a NumPy array, or a tensor of PyTorch on the CPU. It may
        be x.
    backend : str, optional
        See `truenorm.backends`. TRUENORM_BACKEND overrides it.
    threads : int, optional
        Largest number of threads. TRUENORM_THREADS overrides it. The reference backend uses one.
    stream : optional
        Stream or queue for an x on a device, instead of its own. It must be None for other arrays.

    Returns
    -------
    ndarray
        y, of the shape and type of x.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> x = np.array([100000, 100001, 100003], dtype=np.float32)
    >>> print(tn.layer_norm(x))
    [-1.0690415  -0.26726037  1.3363019 ]
    """
    if more or unknown:
        raise unexpected(LAYER_NORM, layer_norm, more, unknown)
    y: NDArray[Any] = fast_path.forward(
        LAYER_NORM, x, gamma, beta, axis, eps, rounding, out, backend, threads, stream, False
    )
    if y is not NotImplemented:
        return y
    return fast_path.general_forward(
        LAYER_NORM, x, gamma, beta, axis, eps, rounding, out, backend, threads, stream, False
    )[0]


@hide_unknown
def layer_norm_forward(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
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
    """Compute `layer_norm`, and save the state for the backward pass.

    Parameters
    ----------
    x, gamma, beta, axis, eps, rounding, backend, threads, stream
        As in `layer_norm`.
    out : ndarray or tensor, optional
        Output array. It must overlap neither x nor gamma, which backward reads.

    Returns
    -------
    y : ndarray
        Of the shape and type of x.
    saved : Saved
        State for `layer_norm_backward`. It references x and gamma: do not change them before.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> y, saved = tn.layer_norm_forward(np.eye(3), np.ones(3), np.zeros(3))
    >>> saved
    <truenorm.Saved: owns 3 numbers for each of 3 rows, 72 bytes; keeps alive x (3, 3) ...>
    """
    if more or unknown:
        raise unexpected(LAYER_NORM, layer_norm_forward, more, unknown)
    results: tuple[NDArray[Any], Saved] = fast_path.forward(
        LAYER_NORM, x, gamma, beta, axis, eps, rounding, out, backend, threads, stream, True
    )
    if results is not NotImplemented:
        return results
    return fast_path.general_forward(
        LAYER_NORM, x, gamma, beta, axis, eps, rounding, out, backend, threads, stream, True
    )


@hide_unknown
def layer_norm_backward(
    dy: Any,
    saved: Saved,
    *more: object,
    out: Any = None,
    backend: str | None = None,
    threads: int | None = None,
    stream: Any = None,
    **unknown: Never,
) -> Gradients:
    r"""Compute the gradients of a loss with respect to x, gamma and beta.

    .. math:: dx = r \, (g - \mathrm{mean}(g) - \hat{x} \, \mathrm{mean}(g \hat{x})), \quad
              g = \gamma \, dy

    .. math:: d\gamma = \sum_\mathrm{rows} dy \, \hat{x}, \qquad d\beta = \sum_\mathrm{rows} dy

    Every element is the exact real number, rounded once, as in `layer_norm`; with
    ``rounding="fast"`` in forward, within its error bound.

    Parameters
    ----------
    dy : array_like
        The gradient with respect to y, of its shape and type.
    saved : Saved
        State returned by `layer_norm_forward`.
    out : ndarray or tensor, optional
        Output array for dx. It must not overlap x, gamma or dy.
    backend, threads, stream
        As in `layer_norm`.

    Returns
    -------
    Gradients
        dx, dgamma and dbeta. dgamma or dbeta is None if gamma or beta was not passed.

    Raises
    ------
    RuntimeError
        If the mean of a row of x changed since forward. Changes that preserve the mean, such as
        another order within a row, and changes of gamma are not detected.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> x = np.array([[1.0, 2.0, 4.0]])
    >>> y, saved = tn.layer_norm_forward(x, np.ones(3), np.zeros(3))
    >>> dx, dgamma, dbeta = tn.layer_norm_backward(np.ones_like(x), saved)
    >>> print(dx, dbeta)
    [[0. 0. 0.]] [1. 1. 1.]
    """
    if more or unknown:
        raise unexpected(LAYER_NORM, layer_norm_backward, more, unknown)
    gradients: Gradients = fast_path.backward(LAYER_NORM, dy, saved, out, backend, threads, stream)
    if gradients is not NotImplemented:
        return gradients
    return fast_path.general_backward(LAYER_NORM, dy, saved, out, backend, threads, stream)
