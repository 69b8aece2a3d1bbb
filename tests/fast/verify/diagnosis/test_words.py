"""Words of hypotheses: two wrong kernels have two sentences, or one of them is never named."""

from collections import Counter

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.grouped.planted import PLANTED
from truenorm.verify.norms.grouped.causes import tables_of
from truenorm.verify.norms.grouped.derived import derived_of
from truenorm.verify.norms.hypotheses import hypotheses_of
from truenorm.verify.operations import parse_operation

SPECS = sorted({bug.spec for bug in PLANTED})
CASES = ("float32-normal-4x3", "float32-normal-4x17", "float32-rows-7x5")


@pytest.mark.parametrize("spec", SPECS)
def test_no_words_are_in_two_tables(spec: str) -> None:
    norm = parse_operation(spec)
    for output in norm.outputs:
        counts = Counter(words for table in tables_of(norm, output.name) for words in table)
        assert [words for words, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("spec", ["layer_norm", "add_rms_norm"])
def test_words_of_a_table_and_of_a_mutant_mean_the_same(spec: str) -> None:
    """Rounding apart: the order of operations may differ."""
    norm = parse_operation(spec)
    for output in norm.outputs:
        written, derived = hypotheses_of(norm, output.name), derived_of(norm, output.name)
        for words in written.keys() & derived.keys():
            for name in CASES:
                case = tv.case(name, operation=norm)
                with np.errstate(all="ignore"):
                    one, other = written[words](case), derived[words](case)
                size = np.abs(one[np.isfinite(one)]).max(initial=0.0)
                np.testing.assert_allclose(other, one, 1e-9, 1e-9 * size, err_msg=words)
