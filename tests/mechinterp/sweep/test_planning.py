import itertools

import pytest

from circuits.errors import InputError
from mechinterp.config import to_json
from mechinterp.sweep.planning import directory_of, planned
from mechinterp.sweep.spec import read_spec

LISTED = """
[[list]]
task = {k = 4}
training = {batch = 8}
"""


def _settings(runs):
    return [tuple(run.settings.values()) for run in runs]


def test_a_grid_is_every_combination_with_every_seed(description):
    spec = read_spec(
        description(text='[grid]\n"task.k" = [2, 3]\n"training.lr" = [0.1, 0.2, 0.3]\n'
        '[seeds]\nvalues = [7, 8]\nfields = ["model.init_seed"]')
    )  # fmt: skip
    runs = planned(spec)
    expected = list(itertools.product([2, 3], [0.1, 0.2, 0.3], [7, 8]))
    assert _settings(runs) == expected
    assert [(r.config.task.k, r.config.training.lr, r.config.model.init_seed) for r in runs] == (
        expected
    )


def test_zipped_fields_vary_together_and_listed_points_are_added(description):
    zipped = '[[zip]]\n"task.k" = [2, 4]\n"task.n_b" = [40, 20]\n'
    assert _settings(planned(read_spec(description(text=zipped)))) == [(2, 40), (4, 20)]
    both = planned(read_spec(description(text=zipped + LISTED)))
    assert _settings(both) == [(2, 40), (4, 20), (4, 8)]
    assert _settings(planned(read_spec(description(text=LISTED)))) == [(4, 8)]


def test_names_tell_what_differs_and_the_same_run_is_planned_once(description):
    runs = planned(read_spec(description()))
    assert [run.name.rsplit("-", 1)[0] for run in runs] == [
        "lr0.001-s0", "lr0.001-s1", "lr0.003-s0", "lr0.003-s1",
    ]  # fmt: skip
    assert len({run.key for run in runs}) == 4
    twice = planned(read_spec(description(text='[grid]\n"training.lr" = [1e-3, 1e-3]')))
    assert len(twice) == 1


def test_what_a_name_may_not_hold_is_left_out_of_it(description):
    text = '[grid]\n"training.lr_factor" = [["blocks.1.attn.W_[QK]=0.3"], ["../up/mlp=2"]]'
    names = [run.name.rsplit("-", 1)[0] for run in planned(read_spec(description(text=text)))]
    assert names == ["lr_factorblocks.1.attn.W_QK=0.3", "lr_factor..upmlp=2"]


def test_changing_one_axis_adds_runs_and_leaves_the_others_where_they_are(description, tmp_path):
    before = planned(read_spec(description()))
    for run in before:
        (tmp_path / "runs" / run.name).mkdir(parents=True)
    wider = planned(read_spec(description('[[zip]]\n"task.k" = [3, 5]')))
    places = [directory_of(tmp_path / "runs", run) for run in wider]
    there = [place.name for place in places if place.is_dir()]
    assert sorted(there) == sorted(run.name for run in before)
    assert len(wider) == 8
    assert {run.key for run in before} < {run.key for run in wider}


def test_two_configurations_never_share_a_key(description):
    text = '[grid]\n"task.k" = [2, 3, 4]\n"training.lr" = [0.1, 0.2]\n"model.n_heads" = [2, 4]'
    runs = planned(read_spec(description(text=text)))
    assert len({run.key for run in runs}) == len({str(to_json(run.config)) for run in runs}) == 12


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[grid]\n"task.k" = [2, "many"]', "config.task.k is 'many'"),
        ('[grid]\n"training.lr" = [-1.0]', r"lr is -1.0; it has to be in \[0, inf\)"),
        ('[grid]\n"task.q" = [1]', "no field 'task.q'"),
        ('[grid]\n"task.k" = []', "no runs"),
        ('[base.task]\nname = "markov_chains"\n[stop]\nconverged = 3', "marginals task with K > 1"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(description, text, words):
    with pytest.raises(InputError, match=words):
        planned(read_spec(description(text=text)))


def test_a_slip_that_asks_for_endless_runs_is_caught(description, monkeypatch):
    spec = read_spec(description(text='[grid]\n"task.mapping_seed" = [1, 2, 3, 4]'))
    monkeypatch.setattr("mechinterp.sweep.planning.MOST", 4)
    assert len(planned(spec)) == 4
    monkeypatch.setattr("mechinterp.sweep.planning.MOST", 3)
    with pytest.raises(InputError, match="more than 3 runs; split it"):
        planned(spec)
