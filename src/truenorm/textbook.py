r"""Layer normalization and RMSNorm in textbook form: read this first.

For each row of D numbers, forward computes

.. math:: y = \gamma \, \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} + \beta

and backward computes the gradients of a loss with respect to x, gamma and beta. RMSNorm has
neither the mean nor a beta. The comments cite the equations of docs/learn/derivation.md.
docs/learn/stability.md shows the rows on which these formulas lose accuracy in floating point;
docs/learn/time-and-memory.md gives the cost of each line.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Saved", "backward", "forward", "rms_norm_backward", "rms_norm_forward"]

FloatArray = NDArray[np.floating[Any]]


class Saved(NamedTuple):
    """The arrays that forward saves for backward, so that nothing is computed twice.

    Attributes
    ----------
    xhat : ndarray
        The normalized rows, of the shape of x.
    rstd : ndarray
        1/sqrt(var + eps), one number per row (the last axis has length 1). For RMSNorm,
        1/sqrt(mean(x^2) + eps).
    gamma : ndarray
        The caller's array, not a copy.
    """

    xhat: FloatArray
    rstd: FloatArray
    gamma: FloatArray


def forward(
    x: FloatArray, gamma: FloatArray, beta: FloatArray, eps: float = 1e-5
) -> tuple[FloatArray, Saved]:
    """Normalize the rows of x, then scale them by gamma and shift them by beta.

    Parameters
    ----------
    x : ndarray
        Any rank, (B, T, D) for instance; each run of D along the last axis is a row.
    gamma, beta : ndarray
        Scale and shift, of shape (D,).
    eps : float
        Added to the variance under the root.

    Returns
    -------
    y : ndarray
        gamma*xhat + beta, of the shape of x.
    saved : Saved
        The arrays that `backward` needs.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm import textbook
    >>> x = np.array([[1.0, 2.0, 3.0]])
    >>> y, saved = textbook.forward(x, gamma=np.ones(3), beta=np.zeros(3))
    >>> print(y.round(4))
    [[-1.2247  0.      1.2247]]
    """
    _check_shapes(x, gamma=gamma, beta=beta)
    mean = x.mean(axis=-1, keepdims=True)  # (D1)
    centred = x - mean  # (D2)
    var = (centred * centred).mean(axis=-1, keepdims=True)  # (D3), from centred rows: two passes
    rstd = 1 / np.sqrt(var + eps)  # (D4)
    xhat = centred * rstd  # (D5)
    y = gamma * xhat + beta  # (D6)
    return y, Saved(xhat, rstd, gamma)


def backward(dy: FloatArray, saved: Saved) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute the gradients of a loss with respect to x, gamma and beta.

    Parameters
    ----------
    dy : ndarray
        The gradient with respect to y, of the shape of y.
    saved : Saved
        The second result of `forward`.

    Returns
    -------
    dx, dgamma, dbeta : ndarray
        The gradients with respect to x (of its shape), gamma and beta (of shape (D,)).

    Examples
    --------
    The gradient of y.sum() with respect to x vanishes: a row of y sums to sum(beta).

    >>> import numpy as np
    >>> from truenorm import textbook
    >>> y, saved = textbook.forward(np.array([[1.0, 2.0, 4.0]]), np.ones(3), np.zeros(3))
    >>> dx, dgamma, dbeta = textbook.backward(np.ones_like(y), saved)
    >>> print(np.allclose(dx, 0, atol=1e-15), dbeta)
    True [1. 1. 1.]
    """
    xhat, rstd, gamma = saved
    _check_dy(dy, xhat)
    rows = tuple(range(dy.ndim - 1))  # every axis but the normalized one
    dbeta = dy.sum(axis=rows)  # (D7)
    dgamma = (dy * xhat).sum(axis=rows)  # (D8)
    g = gamma * dy  # (D9)
    mean_g = g.mean(axis=-1, keepdims=True)
    mean_gxhat = (g * xhat).mean(axis=-1, keepdims=True)
    dx = rstd * (g - mean_g - xhat * mean_gxhat)  # (D17)
    return dx, dgamma, dbeta


def rms_norm_forward(
    x: FloatArray, gamma: FloatArray, eps: float = 1e-5
) -> tuple[FloatArray, Saved]:
    """Divide the rows of x by their root mean square, then scale them by gamma.

    Parameters
    ----------
    x : ndarray
        Any rank; each run of D along the last axis is a row.
    gamma : ndarray
        Scale, of shape (D,).
    eps : float
        Added to the mean square under the root.

    Returns
    -------
    y : ndarray
        gamma*xhat, of the shape of x.
    saved : Saved
        The arrays that `rms_norm_backward` needs.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm import textbook
    >>> y, saved = textbook.rms_norm_forward(np.array([[1.0, 2.0, 3.0]]), gamma=np.ones(3))
    >>> print(y.round(4))
    [[0.4629 0.9258 1.3887]]
    """
    _check_shapes(x, gamma=gamma)
    rstd = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)  # (D25)
    xhat = x * rstd  # (D26)
    y = gamma * xhat  # (D27)
    return y, Saved(xhat, rstd, gamma)


def rms_norm_backward(dy: FloatArray, saved: Saved) -> tuple[FloatArray, FloatArray]:
    """Compute the gradients of a loss with respect to x and gamma.

    Parameters
    ----------
    dy : ndarray
        The gradient with respect to y, of the shape of y.
    saved : Saved
        The second result of `rms_norm_forward`.

    Returns
    -------
    dx, dgamma : ndarray
        The gradients with respect to x (of its shape) and gamma (of shape (D,)).
        `truenorm.rms_norm_backward` returns three values, the last of which is None.

    Examples
    --------
    dx is orthogonal to x if eps = 0: scaling a row does not change y.

    >>> import numpy as np
    >>> from truenorm import textbook
    >>> x = np.array([[1.0, 2.0, 4.0]])
    >>> y, saved = textbook.rms_norm_forward(x, np.ones(3), eps=0)
    >>> dx, dgamma = textbook.rms_norm_backward(np.array([[1.0, 0.0, 0.0]]), saved)
    >>> print(np.allclose((x * dx).sum(), 0, atol=1e-15), dgamma.round(4))
    True [0.378 0.    0.   ]
    """
    xhat, rstd, gamma = saved
    _check_dy(dy, xhat)
    dgamma = (dy * xhat).sum(axis=tuple(range(dy.ndim - 1)))  # (D8)
    g = gamma * dy  # (D9)
    dx = rstd * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True))  # (D29)
    return dx, dgamma


def _check_dy(dy: FloatArray, xhat: FloatArray) -> None:
    """Raise ValueError unless dy has the shape of y."""
    if dy.shape != xhat.shape:
        raise ValueError(f"dy must have the shape of y, {xhat.shape}, got {dy.shape}")


def _check_shapes(x: FloatArray, **parameters: FloatArray) -> None:
    """Raise ValueError for empty rows, and for shapes that broadcast to wrong gradients."""
    if x.shape[-1:] in ((), (0,)):
        raise ValueError(f"x must have at least one element on its last axis, got shape {x.shape}")
    for name, parameter in parameters.items():
        if parameter.shape != x.shape[-1:]:
            raise ValueError(f"{name} must have shape {x.shape[-1:]}, got {parameter.shape}")
