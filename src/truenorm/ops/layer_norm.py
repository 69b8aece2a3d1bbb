"""Layer normalization: every result is the exact answer, rounded once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.dispatch import backend_named
from truenorm.kernels.call import Parameter, Settings
from truenorm.kernels.drive.backward import backward
from truenorm.kernels.drive.forward import forward
from truenorm.kernels.norm import LAYER_NORM
from truenorm.kernels.rows import Rows
from truenorm.kernels.storage import format_of
from truenorm.ops import arguments
from truenorm.ops.arrays import as_array
from truenorm.ops.environment import check_arithmetic, overridden
from truenorm.ops.output import as_parameter, output_for
from truenorm.ops.saved import Gradients, Saved

__all__ = ["layer_norm", "layer_norm_backward", "layer_norm_forward"]


def layer_norm(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
    rounding: str = "correct",
    out: NDArray[Any] | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    r"""Normalize rows of x, scale them by gamma and shift them by beta.

    .. math:: y = \gamma \, \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} + \beta

    Every element of y is the exact real number, rounded once to the type of x: to nearest, ties to
    even. So its bits depend neither on the rest of the batch nor on layout, backend or machine.

    Parameters
    ----------
    x : array_like
        float16, bfloat16, float32 or float64, of any rank, strides and byte order. Arrays of other
        libraries are taken through DLPack if they are on the CPU.
    gamma, beta : array_like, optional
        Scale and shift, of the shape of the normalized axes and of any of the four types. Without
        them 1 and 0.
    axis : int or tuple of int
        The axes a row runs along, as in NumPy.
    eps : float
        Added to the variance.
    rounding : {"correct", "fast"}
        "fast" trades the last bit for speed, within the bound of docs/error-analysis.md. The
        environment variable TRUENORM_ROUNDING overrides it.
    out : ndarray, optional
        Where to put the result; it may be x itself.
    backend : str, optional
        See `truenorm.backends`. TRUENORM_BACKEND overrides it.
    threads : int, optional
        The most threads to use. TRUENORM_THREADS overrides it. The reference backend starts none.

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
    with np.errstate(all="ignore"):
        return _forward(x, gamma, beta, axis, eps, rounding, out, backend, threads, keep=False)[0]


def layer_norm_forward(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
    rounding: str = "correct",
    out: NDArray[Any] | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> tuple[NDArray[Any], Saved]:
    """Do the same as `layer_norm`, and keep what the backward pass needs.

    Parameters
    ----------
    x, gamma, beta, axis, eps, rounding, backend, threads
        As in `layer_norm`.
    out : ndarray, optional
        Where to put the result; it must overlap neither x nor gamma, which backward needs.

    Returns
    -------
    y : ndarray
        Of the shape and type of x.
    saved : Saved
        For `layer_norm_backward`. It keeps x and gamma alive: do not change them in between.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> y, saved = tn.layer_norm_forward(np.eye(3), np.ones(3), np.zeros(3))
    >>> saved
    <truenorm.Saved: owns 3 numbers for each of 3 rows, 72 bytes; keeps alive x (3, 3) ...>
    """
    with np.errstate(all="ignore"):
        return _forward(x, gamma, beta, axis, eps, rounding, out, backend, threads, keep=True)


def _forward(
    x: Any,
    gamma: Any,
    beta: Any,
    axis: int | Sequence[int],
    eps: float,
    rounding: str,
    out: NDArray[Any] | None,
    backend: str | None,
    threads: int | None,
    *,
    keep: bool,
) -> tuple[NDArray[Any], Saved]:
    """Check the arguments and run forward; x and gamma are to be kept for backward or not."""
    check_arithmetic()
    x, target = as_array("x", x)
    axes = arguments.axes_of(x, axis)
    lengths = tuple(x.shape[k] for k in axes)
    gamma_rows, gamma_array = arguments.parameter_of("gamma", gamma, lengths, axis, 1.0)
    beta_rows, beta_array = arguments.parameter_of("beta", beta, lengths, axis, 0.0)
    chosen = backend_named(overridden("TRUENORM_BACKEND", backend))
    settings = Settings(
        LAYER_NORM,
        arguments.eps_of(eps),
        arguments.rounding_of(rounding),
        chosen.name,
        arguments.threads_of(threads),
    )
    # The parameters are read before anything is written, and of the two backward needs gamma.
    y = output_for(x, out, {"x": x, "gamma": gamma_array} if keep else {})
    if out is not None and out is not x and np.may_share_memory(out, x):
        x = x.copy()  # as ufuncs do; not x itself, which each block reads before it writes
    rows = [Rows(array, axes, target) for array in (x, y)]
    kept = forward(chosen, settings, rows[0], gamma_rows, beta_rows, rows[1])
    beta_dtype = None if beta_array is None else beta_array.dtype
    return y, Saved(x, gamma_array, beta_dtype, axes, settings, kept)


def layer_norm_backward(
    dy: Any,
    saved: Saved,
    *,
    out: NDArray[Any] | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> Gradients:
    r"""Carry the gradient of a loss from y back to x, gamma and beta.

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
        What `layer_norm_forward` returned beside y.
    out : ndarray, optional
        Where to put dx; it must overlap neither x, gamma nor dy.
    backend, threads
        As in `layer_norm`.

    Returns
    -------
    Gradients
        dx, dgamma, dbeta; the latter two None where there was no gamma or beta.

    Raises
    ------
    RuntimeError
        If a row of x no longer has the mean it had in forward: x changed in between. Changes that
        move no mean, such as another order within a row, and those of gamma are not noticed.

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
    with np.errstate(all="ignore"):
        return _backward(dy, saved, out, backend, threads)


def _backward(
    dy: Any, saved: Saved, out: NDArray[Any] | None, backend: str | None, threads: int | None
) -> Gradients:
    """Check the arguments and run backward."""
    check_arithmetic()
    if not isinstance(saved, Saved):
        raise TypeError(
            f"saved is a {type(saved).__name__}: pass what layer_norm_forward returned beside y"
        )
    x = saved.x
    slopes, target = arguments.dy_of(dy, x)
    lengths = tuple(x.shape[k] for k in saved.axes)
    gamma, _ = arguments.parameter_of("gamma", saved.gamma, lengths, saved.axes, 1.0)
    beta = Parameter(
        np.zeros(len(gamma.values)),
        None if saved.beta_dtype is None else format_of(saved.beta_dtype),
    )
    settings = saved.settings._replace(threads=arguments.threads_of(threads))
    chosen = backend_named(overridden("TRUENORM_BACKEND", backend))
    dx = output_for(x, out, {"x": x, "gamma": saved.gamma, "dy": slopes})
    dy_rows, x_rows, dx_rows = (Rows(array, saved.axes, target) for array in (slopes, x, dx))
    dgamma, dbeta = backward(chosen, settings, dy_rows, x_rows, saved.kept, gamma, beta, dx_rows)
    return Gradients(
        dx,
        None if saved.gamma is None else as_parameter(dgamma, saved.gamma.dtype, lengths),
        None if saved.beta_dtype is None else as_parameter(dbeta, saved.beta_dtype, lengths),
    )
