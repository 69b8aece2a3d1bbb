"""Causes of hypotheses: no two have the same id or the same words, or one of them is lost."""

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
PLAIN = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm,gain=zero-centred")
CASES = ("float32-normal-4x3", "float32-normal-4x17", "float32-rows-7x5")


@pytest.mark.parametrize("spec", SPECS)
def test_no_cause_is_in_two_tables(spec: str) -> None:
    norm = parse_operation(spec)
    for output in norm.outputs:
        causes = [cause for table in tables_of(norm, output.name) for cause in table]
        for counts in (
            Counter(each.id for each in causes),
            Counter(each.words for each in causes),
        ):
            assert [each for each, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("spec", PLAIN)
def test_a_table_and_the_mutants_have_one_id_for_the_same_words(spec: str) -> None:
    """And the same numbers, rounding apart: the order of operations may differ."""
    norm = parse_operation(spec)
    for output in norm.outputs:
        written, derived = hypotheses_of(norm, output.name), derived_of(norm, output.name)
        causes = {*written, *derived}
        assert len(causes) == len({each.words for each in causes})
        for cause in written.keys() & derived.keys():
            for name in CASES:
                case = tv.case(name, operation=norm)
                with np.errstate(all="ignore"):
                    one, other = written[cause](case), derived[cause](case)
                size = np.abs(one[np.isfinite(one)]).max(initial=0.0)
                np.testing.assert_allclose(other, one, 1e-9, 1e-9 * size, err_msg=cause.id)
