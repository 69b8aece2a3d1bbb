"""The model of many ranks by hand; its tables are those of the page; (L10) by an integral."""

import math

import numpy as np
import pytest

from benchmarks.pages import filled
from benchmarks.scale.__main__ import PAGE, blocks
from benchmarks.scale.model import Model, Network
from benchmarks.scale.undecided import expected


def test_an_allreduce_by_hand() -> None:
    network = Network(latency=1.0, bandwidth=2.0, adding=4.0)
    assert network.allreduce(1, 8.0) == 0
    # Recursive doubling: one step of 1 + 4 + 2. The others send twice: 2 + 2*4/2 + 4/4.
    assert network.allreduce(2, 8.0) == 7
    # Rabenseifner: 2*2 + 2*6000/2 + 6000/4; doubling would take 2*(1 + 4000 + 2000).
    assert network.allreduce(4, 8000.0) == 7504
    # A short message goes by doubling: three steps.
    assert network.allreduce(5, 0.0) == 3


def test_layers_one_by_one_are_as_many_calls() -> None:
    network = Network()
    model = Model(columns=16, norms=3, exact_bytes=50)
    times = model.times(6, network)
    assert times.plain == pytest.approx(1e3 * network.allreduce(6, 3 * 16 * 8))
    assert times.exact_by_layer == pytest.approx(
        3e3 * (network.allreduce(6, 40) + network.allreduce(6, 16 * 50))
    )


def test_the_page_has_the_tables_of_the_command() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, blocks(Model(), Network())) == page


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_probability_is_the_integral(delta: float) -> None:
    """E min(1, delta/|Z|) by the trapezoidal rule in log z: (L10) leaves out delta squared."""
    z = np.exp(np.linspace(math.log(1e-12), math.log(40), 200_001))
    density = math.sqrt(2 / math.pi) * np.exp(-z * z / 2)
    integral = float(np.trapezoid(np.minimum(1, delta / z) * density * z, np.log(z)))
    relative_error = delta * math.log(2) / 2**24
    assert expected(relative_error) == pytest.approx(integral, rel=1e-3)
