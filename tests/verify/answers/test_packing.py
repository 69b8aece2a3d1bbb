"""What is kept of an answer gives it again to the bit, in little room, or is not believed."""

import numpy as np
import pytest

from truenorm.verify.operation import Case
from truenorm.verify.oracle import AnswerKey, Arrays, compute_exact, fingerprint, pack, unpack
from truenorm.verify.suite import case
from truenorm.verify.types import FORMATS

# Ties and zeros; what is not finite; predictors that overflow; results that underflow.
NAMES = ["exact-tie", "zeros", "nan-in-gamma", "infinity-in-x", "largest-numbers", "subnormal-x"]
PLAIN = "float32-normal-4x17"


def packed(some: Case) -> bytes:
    return pack(AnswerKey.of(some), some.operation.predictors, compute_exact(some))


def unpacked(some: Case, content: bytes) -> Arrays | None:
    return unpack(AnswerKey.of(some), some.operation.predictors, content)


def comes_back(some: Case) -> bool:
    found = unpacked(some, packed(some))
    return found is not None and fingerprint(found) == fingerprint(compute_exact(some))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_bit_comes_back(dtype: str, name: str) -> None:
    assert comes_back(case(f"{dtype}-{name}"))


@pytest.mark.parametrize("absent", ["gamma", "beta"])
def test_without_parameters(absent: str) -> None:
    some = case(PLAIN).with_inputs(**{absent: None})
    assert f"d{absent}" not in compute_exact(some)
    assert comes_back(some)


def test_it_is_small() -> None:
    """Of narrow types a few bits a number; of float64 what the rounding left over, too."""
    for dtype, share in (("float32", 1 / 16), ("float64", 1 / 2)):
        some = case(f"{dtype}-normal-4x256")
        size = sum(array.nbytes for array in compute_exact(some).values())
        assert len(packed(some)) < share * size


def test_numbers_of_any_kind_come_back() -> None:
    """Also those that no rounding gives, and those that nobody predictors."""
    question = AnswerKey.of(case(PLAIN))
    random = np.random.default_rng(0)
    exact = {
        name: random.integers(0, 2**64, array.shape, np.uint64).view(np.float64)
        for name, array in (compute_exact(case(PLAIN)) | {"other": np.zeros((2, 3, 5))}).items()
    }
    for predictors in (case(PLAIN).operation.predictors, {}):
        found = unpack(question, predictors, pack(question, predictors, exact))
        assert found is not None
        assert fingerprint(found) == fingerprint(exact)


def test_what_is_damaged_is_not_believed() -> None:
    some = case(PLAIN)
    content, right = packed(some), fingerprint(compute_exact(some))
    damaged = [b"", content[:20], content[:-1], content[:40], content[:32] + b"nothing"]
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        damaged.append(bytes(changed))
    for each in damaged:
        found = unpacked(some, each)
        assert found is None or fingerprint(found) == right


def test_the_answer_to_another_question_is_not_believed() -> None:
    for name in ("float32-normal-4x12", "float32-offset-1-4x67"):
        assert unpacked(case(name), packed(case(PLAIN))) is None


def test_another_guess_is_noticed() -> None:
    """As on a processor that computes otherwise."""
    some = case(PLAIN)
    others = {**some.operation.predictors, "y": lambda known: np.nextafter(known["x"], 9)}
    assert unpack(AnswerKey.of(some), others, packed(some)) is None
