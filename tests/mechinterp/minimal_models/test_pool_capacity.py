import math

import pandas as pd
import pytest

from circuits.errors import InputError
from mechinterp.config import MarkovChainsConfig
from mechinterp.minimal_models.pool_capacity import CapacityGrid, capacity, capacity_grid
from mechinterp.minimal_models.pool_training import PoolTraining


def planted(memorised: dict[tuple[int, float], list[bool]]) -> pd.DataFrame:
    rows = [
        {"d_task": d_task, "d_hidden": 32, "k": k, "memorised": good}
        for (d_task, k), seeds in memorised.items()
        for good in seeds
    ]
    return pd.DataFrame(rows)


def test_capacity_stops_at_the_first_failure():
    table = planted(
        {
            (1, 4.0): [False],
            (1, 8.0): [True],
            (2, 8.0): [True],
            (2, 4.0): [True],
            (2, 16.0): [False],
            (2, 32.0): [True],
            (4, 4.0): [True],
            (4, 8.0): [True],
            (4, math.inf): [False],
        }
    )
    rows = capacity(table).set_index("d_task")
    assert rows["k_c"].to_dict() == {1: 0.0, 2: 8.0, 4: 8.0}
    assert rows["next_k"].to_dict() == {1: 4.0, 2: 16.0, 4: math.inf}
    assert rows["bounded"].to_dict() == {1: True, 2: True, 4: False}


def test_half_of_the_seeds_have_to_memorise():
    table = planted({(2, 4.0): [True, False], (2, 8.0): [True, False, False]})
    row = capacity(table).iloc[0]
    assert (row["k_c"], row["next_k"], row["seeds"]) == (4.0, 8.0, 2)


def test_grid_trains_every_cell_and_tells_about_it():
    lines: list[str] = []
    grid = CapacityGrid(
        task=MarkovChainsConfig(n_states=3, length=16),
        ks=(2, "inf"),
        d_tasks=(1, 4),
        d_hiddens=(8,),
        training=PoolTraining(steps=40, batch=8, positions=4),
        n=32,
    )
    table = capacity_grid(grid, lines.append)
    assert table[["d_task", "k"]].to_numpy().tolist() == [
        [1, 2],
        [1, math.inf],
        [4, 2],
        [4, math.inf],
    ]
    assert lines[0] == "1/4 d_task 1 d_hidden 8 k 2 seed 0"
    assert len(lines) == 4
    assert table["kl_truth"].gt(0).all()
    fresh = table[table["k"] == math.inf]
    assert not fresh["memorised"].any()
    assert fresh["kl_two_mem"].isna().all()
    ratio = table["kl_truth_new"] / table["gap_two_gen_new"]
    assert table["ratio_new"].tolist() == ratio.tolist()
    assert capacity(table)["d_task"].tolist() == [1, 4]


def test_errors_say_what_is_allowed():
    with pytest.raises(InputError, match="no column memorised; give what capacity_grid gave"):
        capacity(pd.DataFrame({"k": [2], "d_task": [1], "d_hidden": [8]}))
    with pytest.raises(InputError, match="no row has a finite k"):
        capacity(planted({(1, math.inf): [False]}))
