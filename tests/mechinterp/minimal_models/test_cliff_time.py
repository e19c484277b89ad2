import math

import numpy as np
import pandas as pd
import pytest
import torch

from circuits.errors import InputError
from mechinterp.minimal_models.cliff_time import CliffStudy, law_table, tau_table

LENGTHS = (50, 100, 200, 400, 800)


def planted(power: float, noise: float = 0.0) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    rows = [
        {
            "sample": sample,
            "length": n,
            "tau": 7.0 * (n / math.log(n)) ** power * math.exp(noise * generator.normal()),
            "c_beta": math.log(n) / n,
            "reached": True,
        }
        for sample in range(3)
        for n in LENGTHS
    ]
    return pd.DataFrame(rows)


def test_a_planted_law_is_found():
    laws = law_table(planted(1.0)).set_index("x")
    assert laws.loc["n_over_log", "exponent"] == pytest.approx(1.0)
    assert laws.loc["1 / c_beta", "exponent"] == pytest.approx(1.0)
    assert laws.loc["n_over_log", "worst"] < 1e-9
    assert 0.7 < laws.loc["length", "exponent"] < 0.85
    assert laws.loc["length", "worst"] > 1e-3


def test_the_interval_holds_a_planted_exponent_and_excludes_another():
    row = law_table(planted(0.8, noise=0.01)).set_index("x").loc["n_over_log"]
    assert row["low"] < 0.8 < row["high"] < 1.0
    assert row["samples"] == 3


def test_tau_grows_with_the_length():
    study = CliffStudy(n_states=4, lengths=(40, 80, 160), n_chains=400, states_per_rate=10.0)
    generator = torch.Generator().manual_seed(0)
    table = tau_table(study, generator, n_samples=1)
    assert table["reached"].all()
    assert table["tau"].is_monotonic_increasing
    assert table["tau"].iloc[-1] > 1.3 * table["tau"].iloc[0]
    # The linear growth of beta up to the cliff: the same order of size at every length.
    assert table["tau_c_beta"].between(0.5, 2.5).all()
    assert table["n_over_log"].iloc[0] == pytest.approx(40 / math.log(40))
    assert law_table(table).set_index("x").loc["length", "exponent"] > 0.3


def test_the_table_is_a_function_of_the_seed():
    study = CliffStudy(n_states=3, lengths=(10,), n_chains=20, states_per_rate=10.0, steps=20)
    generator = torch.Generator().manual_seed(0)
    tables = [tau_table(study, generator, n_samples=2) for _ in range(2)]
    pd.testing.assert_frame_equal(*tables)
    assert tables[0]["c_beta"].nunique() == 2


def test_too_few_cliffs_are_refused():
    table = planted(1.0)
    table["reached"] = table["length"] > 200
    with pytest.raises(InputError, match="2 lengths reached the cliff; a law needs at least 3"):
        law_table(table)
