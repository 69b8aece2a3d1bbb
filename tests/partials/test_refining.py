"""Columns that a partial leaves undecided, decided from the rows."""

import numpy as np
import pytest

import truenorm as tn


def test_rows_with_infinities_add_nothing_beside_them() -> None:
    """Their xhat is 0 there, and integers must not be asked for their mean square (D33)."""
    x = np.array([[np.inf, 0, -1, 2], [3, 0, -3, 1]], np.float32)
    dy = np.ones_like(x)
    _, saved = tn.rms_norm_forward(x, np.ones(4, np.float32))
    _, partial = tn.rms_norm_backward_partial(dy, saved)
    assert partial.rounded().undecided.tolist() == [1]
    refined = partial.refine([(dy, saved)])
    assert not len(refined.undecided)
    expected = tn.rms_norm_backward(dy, saved).dgamma
    assert refined.dgamma is not None
    assert expected is not None
    assert refined.dgamma.tobytes() == expected.tobytes()


def test_rows_with_infinities_are_counted() -> None:
    x = np.array([[np.inf, 0, -1, 2], [3, 0, -3, 1]], np.float32)
    dy = np.ones_like(x)
    gamma = np.ones(4, np.float32)
    _, saved = tn.rms_norm_forward(x, gamma)
    _, partial = tn.rms_norm_backward_partial(dy, saved)
    _, others = tn.rms_norm_forward(x[1:], gamma)
    with pytest.raises(ValueError, match="1 rows and the partial 2"):
        partial.refine([(dy[1:], others)])
