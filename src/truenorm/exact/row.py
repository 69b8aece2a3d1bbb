"""One row in integers: its statistics, y and dx.

The definitions are (D1) to (D6) and (D17) of docs/derivation.md. With x = X/2**k and n
elements, C = n*X - sum(X) gives c = C/(n*2**k) and v = sum(C**2)/(n**3 * 4**k). Where rows are not
centred, the sums of X and of G are left out: then c = x.
"""

from collections.abc import Sequence

from truenorm.exact.formats import FloatFormat
from truenorm.exact.integers import scaled_integers
from truenorm.exact.roots import InverseRoot

__all__ = ["ExactRow", "RowGradient", "centred_signs"]


def centred_signs(x: Sequence[float]) -> list[int]:
    """Return the signs of x - mean(x): -1, 0 or 1 for each element."""
    integers, _ = scaled_integers(x)
    size, total = len(integers), sum(integers)
    return [(size * value > total) - (size * value < total) for value in integers]


class ExactRow:
    """A row of finite numbers, with eps such that w = var + eps is not zero.

    Attributes
    ----------
    is_centred : bool
        Whether its mean is subtracted.
    centred : list of int
        C, with c = C/`scale`.
    scale : int
        n*2**k.
    root : InverseRoot
        r = 1/sqrt(w).
    """

    def __init__(self, x: Sequence[float], eps: float, *, is_centred: bool = True) -> None:
        integers, k = scaled_integers(x)
        size = len(integers)
        total = sum(integers) if is_centred else 0
        self.is_centred = is_centred
        self.centred = [size * value - total for value in integers]
        self.scale = size << k
        squares = sum([value * value for value in self.centred])
        eps_over, eps_under = float(eps).as_integer_ratio()
        # w = squares/(n*scale**2) + eps, over one denominator.
        unit = size * self.scale * self.scale
        self.eps_under = eps_under
        self.root = InverseRoot(squares * eps_under + eps_over * unit, eps_under * unit)

    def y(self, j: int, gamma: float, beta: float, target: FloatFormat) -> float:
        """Round gamma*c_j*r + beta (D6)."""
        gamma_over, gamma_under = gamma.as_integer_ratio()
        beta_over, beta_under = beta.as_integer_ratio()
        under = self.scale * gamma_under
        return self.root.round_linear(
            gamma_over * self.centred[j] * beta_under,
            beta_over * under,
            under * beta_under,
            target,
        )


class RowGradient:
    """The gradient dx of a row (D17), from g = gamma*dy.

    r*(g - mean(g) - c*mean(g*c)/w) over one denominator: with g = G/2**k and
    w = root.numerator/root.denominator, the bracket is `bracket(j)`/`denominator`. Many rows have
    the same gamma, which is therefore given as `scaled_integers` returns it.
    """

    def __init__(
        self, row: ExactRow, gamma: tuple[Sequence[int], int], dy: Sequence[float]
    ) -> None:
        gammas, gamma_k = gamma
        dys, dy_k = scaled_integers(dy)
        self.row = row
        self.g = [a * b for a, b in zip(gammas, dys, strict=True)]
        self.total = sum(self.g) if row.is_centred else 0
        along = sum([a * c for a, c in zip(self.g, row.centred, strict=True)])
        # In c*mean(g*c)/w the factor n*scale**2 of w's denominator cancels; eps_under is left.
        self.slope = along * row.eps_under * len(self.g)
        self.denominator = len(self.g) * row.root.numerator << (gamma_k + dy_k)

    def bracket(self, j: int) -> int:
        """Return g_j - mean(g) - c_j*mean(g*c)/w, times `denominator`."""
        centred = len(self.g) * self.g[j] - self.total
        return centred * self.row.root.numerator - self.row.centred[j] * self.slope

    def dx(self, j: int, target: FloatFormat) -> float:
        """Round dx_j."""
        return self.row.root.round_linear(self.bracket(j), 0, self.denominator, target)
