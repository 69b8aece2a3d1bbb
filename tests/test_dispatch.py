"""Which backends there are, how one is chosen, and what is said of it."""

import logging
from collections.abc import Iterator

import numpy as np
import pytest

import truenorm as tn
from programs import run_python
from truenorm.api import backends, settings

X = np.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def nothing_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def not_chosen_yet() -> Iterator[None]:
    kept = (backends._automatic, settings._cached, settings._cached_backward)
    for function in kept:
        function.cache_clear()
    yield
    for function in kept:
        function.cache_clear()


def test_backends_say_whether_and_why() -> None:
    statuses = tn.backends()
    names = [status.name for status in statuses]
    assert "reference" in names
    assert len(set(names)) == len(names)
    for name, usable, reason in statuses:
        assert isinstance(name, str)
        assert isinstance(usable, bool)
        assert reason
    assert dict(zip(names, statuses, strict=True))["reference"].usable


def test_an_unknown_one_is_refused() -> None:
    words = r"backend must be None or one of \[.*'reference'.*\], got 'abacus'"
    with pytest.raises(ValueError, match=words):
        tn.layer_norm(X, backend="abacus")
    _, saved = tn.layer_norm_forward(X)
    with pytest.raises(ValueError, match=words):
        tn.layer_norm_backward(X, saved, backend="abacus")


def test_the_name_of_the_former_one_is_refused() -> None:
    words = (
        "^backend 'fused' was replaced by 'native', the C core: use backend='native' "
        "or leave it out$"
    )
    with pytest.raises(ValueError, match=words):
        tn.layer_norm(X, backend="fused")
    _, saved = tn.layer_norm_forward(X)
    with pytest.raises(ValueError, match=words):
        tn.layer_norm_backward(X, saved, backend="fused")


@pytest.mark.usefixtures("not_chosen_yet")
class TestChoosing:
    def test_the_first_usable_one(self) -> None:
        first = next(status.name for status in tn.backends() if status.usable)
        assert backends.backend_named(None).name == first

    def test_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "truenorm"):
            for _ in range(3):
                _, saved = tn.layer_norm_forward(X)
                tn.layer_norm_backward(X, saved)
        first = next(status for status in tn.backends() if status.usable)
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("truenorm", logging.INFO)
        assert repr(first.name) in record.getMessage()
        assert first.reason in record.getMessage()

    def test_asking_for_one_logs_nothing(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with caplog.at_level(logging.DEBUG, "truenorm"):
            tn.layer_norm(X, backend="reference")
            monkeypatch.setenv("TRUENORM_BACKEND", "reference")
            tn.layer_norm(X)
        assert not caplog.records


class TestAdvice:
    """Of the reference backend, to whoever waits for double-double in NumPy."""

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    def test_one_line_a_call(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, rounding: str
    ) -> None:
        monkeypatch.setattr("truenorm.kernels.reference.backend.LARGE", 5)
        with caplog.at_level(logging.INFO, "truenorm"):
            _, saved = tn.layer_norm_forward(X, rounding=rounding, backend="reference")
            assert len(caplog.records) == 1
            tn.layer_norm_backward(X, saved, backend="reference")
            assert len(caplog.records) == 2
        for record in caplog.records:
            assert (record.name, record.levelno) == ("truenorm", logging.INFO)
            assert record.getMessage().startswith("6 float64 elements")

    def test_none_for_little_or_narrow_data(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with caplog.at_level(logging.INFO, "truenorm"):
            monkeypatch.setattr("truenorm.kernels.reference.backend.LARGE", 6)
            tn.layer_norm(X, backend="reference")
            monkeypatch.setattr("truenorm.kernels.reference.backend.LARGE", 0)
            tn.layer_norm(X.astype(np.float32), backend="reference")
        assert not caplog.records


def test_import_configures_no_logging() -> None:
    code = """
        import logging, truenorm as tn, numpy as np
        tn.layer_norm(np.eye(3))
        root, ours = logging.getLogger(), logging.getLogger('truenorm')
        others = [h for h in ours.handlers if not isinstance(h, logging.NullHandler)]
        print(root.handlers, root.level, ours.level, others, ours.propagate)
    """
    assert run_python(code) == ["[] 30 0 [] True"]
