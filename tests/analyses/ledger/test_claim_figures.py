"""An axis says what the points on it are, which need not be what the claim's number is."""

import pytest

from analyses.ledger.claim import judge
from analyses.ledger.figures import claim_figure
from analyses.ledger.registry import CLAIMS
from tests.analyses.ledger.planted import PlantedStore
from tests.analyses.ledger.worlds import reproduced

BY_ID = {claim.id: claim for claim in CLAIMS}


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("noise-removed", "waiting time (steps)"),  # its number is a ratio
        ("batch-slows", "waiting time (examples)"),
        ("noise-temperature", "learning rate times waiting time"),  # its number is an exponent
        ("tau-exponent", "waiting time (steps)"),
        ("plateau-height", "ln K"),
    ],
)
def test_the_axis_of_a_figure_names_its_points(name, axis):
    claim = BY_ID[name]
    one = judge(claim, PlantedStore(reproduced(claim.studies)))
    figure = claim_figure(one)
    assert figure.layout.yaxis.title.text == axis
    drawn = [y for trace in figure.data for y in trace.y if y is not None]
    column = "time" if "time" in one.measured.table else "value"
    assert sorted(drawn) == pytest.approx(sorted(one.measured.table[column].dropna()))
