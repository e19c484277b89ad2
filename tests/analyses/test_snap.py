import math

import numpy as np
import pandas as pd
import pytest

from analyses import snap
from analyses.catalogue import Plateau, Snap
from analyses.groups.collective import collective_row, holm
from analyses.plateau import answer as ask_plateau
from analyses.snap import nearest_steps, snap_verdict
from circuits.errors import InputError
from mechinterp.runs import Run
from mechinterp.tasks.marginals_diagnostics import diagnostics

K = 10


def _planted(together):
    """Accuracy rises from 0.1 to 0.9 around tau; members rise together, or each on its own."""
    generator = np.random.default_rng(0)
    rows = []
    for share in np.linspace(0, 1.5, 7):
        p = 0.1 + 0.8 / (1 + math.exp(-(share - 1) / 0.1))
        draws = generator.random((120, 1 if together else K))
        outcomes = np.broadcast_to(draws < p, (120, K)).copy()
        rows.append({"step": share * 100, "share_of_tau": share, **collective_row(outcomes, 200)})
    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table["p_spread_by_slot"].to_numpy())
    return table


def test_a_planted_snap_is_collective_and_independent_items_are_not():
    together, alone = snap_verdict(_planted(True)), snap_verdict(_planted(False))
    assert together["collective"]
    assert together["icc"] == pytest.approx(1.0)
    assert not alone["collective"]
    assert abs(alone["icc"]) < 0.06
    # The paper's criterion has it the other way round.
    assert alone["paper"] == alone["paper_of_null"] == "snap"
    assert together["paper"] != "snap"


def test_steps_are_the_nearest_ones_each_once():
    assert nearest_steps([0, 10, 20, 30, 100], 30.0, 4) == [0, 10, 20, 30]
    assert nearest_steps([0, 100], 30.0, 20) == [0]


def test_a_tiny_run_by_the_tasks_own_diagnostics(tiny_runs):
    run = Run.open("lookup-12", tiny_runs)
    answer = snap.answer(Snap(run="lookup-12", root=tiny_runs, groups=12, permutations=200))
    table = answer.tables["snap"].set_index("step")
    tau = ask_plateau(Plateau(run="lookup-12", root=tiny_runs)).tables["taus"]["sound"][0]
    assert answer.tables["verdict"]["tau"][0] == pytest.approx(tau)
    assert set(table.index) == set(nearest_steps(run.steps, 1.5 * tau, 20))
    assert len(table) >= 3
    for step in table.index[[0, -1]]:
        found = diagnostics(run.model(int(step)), run.task(), 24, "full")
        assert table.at[step, "mean_accuracy"] == pytest.approx(found["group_mean_accuracy"].value)
        assert table.at[step, "groups_100"] == pytest.approx(found["group_accuracy"].value)
        assert table.at[step, "groups_80"] == pytest.approx(found["groups_80"].value)
    assert table["mean_accuracy"].iloc[-1] > table["mean_accuracy"].iloc[0]
    assert len(answer.figures) == 2


def test_the_reference_run(reference):
    request = Snap(run=str(reference / "marginals-k20"), groups=3, checkpoints=4, permutations=200)
    table = snap.answer(request).tables["snap"]
    assert len(table) == 4
    assert table["step"].iloc[0] == 0
    assert table["mean_accuracy"].iloc[0] < 0.2 < 0.5 < table["mean_accuracy"].iloc[-1]
    assert (table["groups_80"] >= table["groups_100"]).all()


def test_what_is_refused(tiny_runs, monkeypatch):
    def refused(match, **options):
        with pytest.raises(InputError, match=match):
            snap.answer(Snap(root=tiny_runs, **options))

    refused(r"snap needs a run of the task marginals", run="chains")
    refused(r"log of short has 3 rows", run="short", groups=6)
    refused(r"13 groups asked for.* choose from 1 to 12", run="lookup-12", groups=13)
    refused(r"groups is 1; it has to be at least 2", run="lookup-12", groups=1)
    refused(r"permutations is 5", run="lookup-12", permutations=5)
    monkeypatch.setattr(Run, "steps", [0, 120])
    refused(r"checkpoints up to 1.5 tau .*at least 3.*--save-every", run="lookup-12", groups=12)


def test_a_run_that_never_gets_there_is_refused(tiny_runs, monkeypatch):
    run = Run.open("lookup-12", tiny_runs)
    early = run.metrics().head(9)
    early = early.assign(candidate_loss=0.69)
    monkeypatch.setattr(Run, "metrics", lambda self: early)
    with pytest.raises(InputError, match=r"does not reach tau: up to step 32 .*train longer"):
        snap.answer(Snap(run="lookup-12", root=tiny_runs, groups=12))
