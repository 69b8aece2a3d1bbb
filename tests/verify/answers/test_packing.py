"""What is kept of an answer gives it again to the bit, in little room, or is not believed."""

from dataclasses import replace

import numpy as np
import pytest

from truenorm.verify.answers.packing import pack, unpack
from truenorm.verify.answers.question import Numbers, Question
from truenorm.verify.oracle import computed, question
from truenorm.verify.suite import case
from truenorm.verify.types import FORMATS

# Ties and zeros; what is not finite; results beyond the type; guesses that overflow.
NAMES = ["exact-tie", "zeros", "nan-in-gamma", "infinity-in-x", "largest-numbers", "subnormal-x"]


def same_bits(some: Numbers, others: Numbers) -> bool:
    return some.keys() == others.keys() and all(
        some[name].tobytes() == others[name].tobytes() for name in some
    )


def asked(name: str) -> Question:
    return question(case(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_bit_comes_back(dtype: str, name: str) -> None:
    what = asked(f"{dtype}-{name}")
    exact = computed(what)
    found = unpack(what, pack(what, exact))
    assert found is not None
    assert same_bits(found, exact)


@pytest.mark.parametrize("absent", ["gamma", "beta"])
def test_without_parameters(absent: str) -> None:
    what = question(replace(case("float32-normal-4x17"), **{absent: None}))  # type: ignore[arg-type]
    exact = computed(what)
    assert f"d{absent}" not in exact
    found = unpack(what, pack(what, exact))
    assert found is not None
    assert same_bits(found, exact)


def test_it_is_small() -> None:
    """Of narrow types a few bits a number; of float64 what the rounding left over, too."""
    for dtype, share in (("float32", 1 / 16), ("float64", 1 / 2)):
        what = asked(f"{dtype}-normal-4x256")
        exact = computed(what)
        assert len(pack(what, exact)) < share * sum(array.nbytes for array in exact.values())


def test_numbers_of_any_kind_come_back() -> None:
    """Also those that no rounding gives: the store takes what it is given."""
    what = asked("float32-normal-4x17")
    random = np.random.default_rng(0)
    exact = {
        name: random.integers(0, 2**64, array.shape, np.uint64).view(np.float64)
        for name, array in computed(what).items()
    }
    with np.errstate(all="ignore"):
        found = unpack(what, pack(what, exact))
    assert found is not None
    assert same_bits(found, exact)


def test_what_is_damaged_is_not_believed() -> None:
    what = asked("float32-normal-4x17")
    content = pack(what, computed(what))
    damaged = [b"", content[:20], content[:-1], content[:40], content + b"more"]
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1
        damaged.append(bytes(changed))
    exact = computed(what)
    for some in damaged:
        found = unpack(what, some)
        assert found is None or same_bits(found, exact)
    assert unpack(what, content[:32] + b"nothing compressed") is None


def test_the_answer_to_another_question_is_not_believed() -> None:
    content = pack(asked("float32-normal-4x17"), computed(asked("float32-normal-4x17")))
    assert unpack(asked("float32-normal-4x12"), content) is None
    assert unpack(asked("float32-offset-1-4x67"), content) is None
