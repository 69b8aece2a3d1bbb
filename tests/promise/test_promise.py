"""The promise: every result is the exact answer, rounded once, compared as bit patterns.

Against the judge of `oracle`, which shares no code with the package. Random rows do not see a
wrong bound, so there are families of difficult rows and cases constructed to lie beside a
rounding boundary; and with the bounds divided by 64, the latter must see it.
"""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from promise.contestants import each_family_alike
from promise.families import DTYPES, Array, Case, cases
from promise.formats import FORMATS
from promise.hard_cases import OUTPUTS, hard_cases, hard_elements
from promise.judging import judge, truenorm_correct
from truenorm.kernels.reference import columns, pairs, working_precision

GATE, SLOW = 10_000, 50_000


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_families(dtype: np.dtype[Any]) -> None:
    """More than 75,000 elements for each type, 300,000 in all."""
    compared = 0
    for case in cases(dtype, 31_000):
        count, wrong = judge(case, truenorm_correct(case))
        compared += count
        assert not wrong, wrong
    assert compared >= 75_000


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_family_alike(dtype: np.dtype[Any]) -> None:
    """The mixture above gives a family few elements at a usual eps; here each has its share."""
    for case, _ in each_family_alike(dtype):
        _, wrong = judge(case, truenorm_correct(case))
        assert not wrong, wrong


def anywhere(random: np.random.Generator, dtype: np.dtype[Any], *shape: int) -> Array:
    """Return numbers of the type with exponents over its whole range, and zeros among them."""
    form = FORMATS[dtype]
    top = form.quantum + 2 ** (form.width - form.precision) + form.precision - 3
    exponents = random.integers(form.quantum, top, shape)
    values: Array = np.ldexp(random.choice([-1.0, 1.0, 1.0], shape), exponents)
    values[random.random(shape) < 0.2] = 0.0
    rounded: Array = values.astype(dtype)
    return rounded


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_from_anywhere_in_the_range(dtype: np.dtype[Any]) -> None:
    """Huge and tiny numbers in one row, with parameters that bring either to light."""
    random = np.random.default_rng(0)
    for seed in range(400):
        rows, size = int(random.integers(1, 4)), int(random.integers(1, 7))
        eps = float(random.choice([0.0, 5e-324, 1e-300, 1e-5, 1.0, 1e300]))
        other = DTYPES[seed % 4]
        x, dy = (anywhere(random, dtype, rows, size) for _ in range(2))
        gamma, beta = (anywhere(random, other, size) for _ in range(2))
        case = Case(f"anywhere {seed}", x, gamma, beta, dy, eps)
        _, wrong = judge(case, truenorm_correct(case))
        assert not wrong, wrong


def test_float64_zeros_are_not_taken_for_the_mean() -> None:
    """The sum of this row is not exact in float64, and its first element not its mean."""
    x = np.array([[0.0, -(2.0**1023), 2.0**1023, 1.0]])
    assert tn.layer_norm(x, np.full(4, 2.0**1023))[0, 0] == -0.3535533905932738


def test_a_call_can_be_interrupted_between_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    expected = tn.layer_norm(x)
    monkeypatch.setattr("truenorm.kernels.reference.correct.BLOCK", 16)
    original, blocks = working_precision.forward, []

    def interrupted(*arguments: Any) -> Any:
        blocks.append(1)
        if len(blocks) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(working_precision, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tn.layer_norm(x)
    assert tn.layer_norm(x).tobytes() == expected.tobytes()


def check_hard_cases(output: str, dtype: np.dtype[Any], elements: int) -> None:
    hard = 0
    for case in hard_cases(output, dtype, elements):
        _, wrong = judge(case, truenorm_correct(case), [output])
        hard += hard_elements(case, output)
        assert not wrong, wrong
    assert hard >= elements


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
def test_hard_cases(output: str, dtype: np.dtype[Any]) -> None:
    check_hard_cases(output, dtype, GATE)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
def test_hard_cases_at_length(output: str, dtype: np.dtype[Any]) -> None:
    check_hard_cases(output, dtype, SLOW)


class TestAWrongBoundIsSeen:
    """With E divided by 64, wrong elements are accepted."""

    @pytest.fixture(autouse=True)
    def bounds_divided_by_64(self, monkeypatch: pytest.MonkeyPatch) -> None:
        narrow, wide = working_precision.rounding_test, pairs._rounding_test
        rounded = columns.BoundedSum.rounded

        def smaller_sum(self: columns.BoundedSum, target: Any) -> Any:
            self._bound = self._bound / 64
            return rounded(self, target)

        monkeypatch.setattr(
            working_precision,
            "rounding_test",
            lambda z, bound, target: narrow(z, bound / 64, target),
        )
        monkeypatch.setattr(
            pairs,
            "_rounding_test",
            lambda z, bound, exponent, target: wide(z, bound / 64, exponent, target),
        )
        monkeypatch.setattr(columns.BoundedSum, "rounded", smaller_sum)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
    def test_in(self, output: str, dtype: type[np.floating]) -> None:
        found = [
            wrong
            for case in hard_cases(output, dtype, 2000)
            for wrong in judge(case, truenorm_correct(case), [output])[1]
        ]
        assert found


def bits_of(*arrays: Array | None) -> list[bytes]:
    return [b"" if array is None else np.ascontiguousarray(array).tobytes() for array in arrays]


def both_passes(x: Array, gamma: Array, beta: Array, dy: Array, **options: Any) -> list[bytes]:
    y, saved = tn.layer_norm_forward(x, gamma, beta, **options)
    return bits_of(y, *tn.layer_norm_backward(dy, saved))


@pytest.fixture(params=DTYPES, ids=str)
def inputs(request: pytest.FixtureRequest) -> tuple[Array, ...]:
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 12, 67)).astype(request.param)
    gamma, beta = random.standard_normal((2, 67)).astype(request.param)
    return x, gamma, beta, dy


class TestTheBatchDoesNotMatter:
    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    def test_rows_alone_and_together(self, inputs: tuple[Array, ...], rounding: str) -> None:
        x, gamma, beta, dy = inputs
        y, saved = tn.layer_norm_forward(x, gamma, beta, rounding=rounding)
        dx = tn.layer_norm_backward(dy, saved).dx
        for cut in range(1, 12):
            for part in (slice(0, cut), slice(cut, None)):
                y_part, saved = tn.layer_norm_forward(x[part], gamma, beta, rounding=rounding)
                dx_part = tn.layer_norm_backward(dy[part], saved).dx
                assert bits_of(y_part, dx_part) == bits_of(y[part], dx[part])

    def test_order_of_the_rows(self, inputs: tuple[Array, ...]) -> None:
        """Dgamma and dbeta too: a correctly rounded sum has no order."""
        x, gamma, beta, dy = inputs
        y, saved = tn.layer_norm_forward(x, gamma, beta)
        dx, dgamma, dbeta = tn.layer_norm_backward(dy, saved)
        for seed in range(5):
            order = np.random.default_rng(seed).permutation(12)
            expected = bits_of(y[order], dx[order], dgamma, dbeta)
            assert both_passes(x[order], gamma, beta, dy[order]) == expected


def test_the_sum_of_two_blocks_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging the columns of blocks in pairs, at exponents far apart."""
    x = np.random.default_rng(0).standard_normal((4, 5))
    x[2:] *= 1e150
    dy = np.random.default_rng(1).standard_normal((4, 5))
    dy[:2] *= 1e-200
    together = tn.layer_norm_backward(dy, tn.layer_norm_forward(x, np.ones(5), np.ones(5))[1])
    monkeypatch.setattr("truenorm.kernels.reference.correct.BLOCK", 5)
    apart = tn.layer_norm_backward(dy, tn.layer_norm_forward(x, np.ones(5), np.ones(5))[1])
    assert bits_of(*together) == bits_of(*apart)
