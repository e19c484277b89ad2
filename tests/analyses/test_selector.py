"""Onset of the selector head: planted series, a plain second route, tiny runs, bad input."""

import numpy as np
import pandas as pd
import pytest
import torch

from analyses import selector
from analyses.catalogue import Selector
from analyses.selector import MODEL, SelectorMeasure, selector_tables
from analyses.waiting.lead import LOSSES, lead_table, lead_verdict
from circuits.errors import InputError
from circuits.selector_head import selector_evidence
from circuits.selector_signals import SIGNALS
from mechinterp.runs import Run
from mechinterp.tasks.marginals_diagnostics import diagnostics

STEPS = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
TAU = 80.0


def planted(onset_of, shuffle=False):
    """Noise of size 0.1 around 0, and from the onset on a rise of 1 a checkpoint."""
    generator = np.random.default_rng(0)
    rows = []
    named = [("L0H1", s) for s in SIGNALS] + [("L0H0", s) for s in SIGNALS]
    for head, signal in [*named, *((MODEL, s) for s in ("selector_effect", *LOSSES))]:
        start = onset_of.get((head, signal), onset_of.get(head, 1000))
        values = [max(0, (step - start) / 10 + 1) + 0.1 * generator.uniform(-1, 1)
                  for step in STEPS]  # fmt: skip
        if shuffle:
            generator.shuffle(values)
        rows += [(s, head, signal, v, v - 0.1, v + 0.1) for s, v in zip(STEPS, values, strict=True)]
    return pd.DataFrame(rows, columns=["step", "head", "signal", "value", "low", "high"])


PLANT = {"L0H1": 40, ("L0H1", "ov_copying"): 30, "L0H0": 60, (MODEL, "candidate_loss"): 70}


def test_a_planted_onset_is_found_with_its_lead():
    tables = selector_tables(planted(PLANT), "L0H1", 3, TAU)
    onset = tables["onsets"].set_index("signal")
    assert onset.loc["value_patch", ["onset", "after"]].tolist() == [40, 30]
    assert onset.loc["value_patch", "lead_low"] == pytest.approx((80 - 40) / 80)
    assert onset.loc["value_patch", "lead_high"] == pytest.approx((80 - 30) / 80)
    assert onset.loc["ov_copying", "onset"] == 30
    assert pd.isna(onset.loc["z_gap", "onset"])
    assert np.isnan(onset.loc["z_gap", "lead_low"])
    assert tables["heads"].set_index("head")["onset"].to_dict() == {"L0H1": 40, "L0H0": 60}
    words = lead_verdict(tables["onsets"], "L0H1")
    assert words.startswith("L0H1 assembles 0.50 to 0.62 tau ahead of tau, which includes")
    assert words.endswith("before the candidate loss, which leaves its noise at step 70")


def test_by_a_plain_loop_over_checkpoints():
    """The band and the rule once more, without pandas."""
    series = planted(PLANT)
    found = selector_tables(series, "L0H0", 3, TAU)["onsets"].set_index("signal")
    for signal in SIGNALS:
        one = series[(series["head"] == "L0H0") & (series["signal"] == signal)]
        low, high = one["low"].tolist(), one["high"].tolist()
        least, most = min(low[:3]), max(high[:3])
        onset = None
        for i in range(3, len(STEPS)):
            if all(a > most for a in low[i:]) or all(b < least for b in high[i:]):
                onset = STEPS[i]
                break
        assert found.loc[signal, "onset"] == onset == 60


def test_shuffled_checkpoints_have_no_onset_at_the_planted_step():
    onset = selector_tables(planted(PLANT, shuffle=True), "L0H1", 3, TAU)["onsets"]
    moved = {"value_patch", "ablation", "knockout_answer", "knockout_after", "attention_decide"}
    at_the_step = onset[onset["signal"].isin(moved) & (onset["onset"] == 40)]
    assert len(at_the_step) < 2
    assert onset["onset"].isna().sum() > len(SIGNALS)


def test_no_tau_no_lead_and_no_onset_no_lead():
    onset = pd.DataFrame({"signal": ["value_patch", "candidate_loss"], "onset": [40, None]})
    never = lead_table(onset.astype({"onset": "Int64"}), STEPS, float("inf"))
    assert never["lead_low"].isna().all()
    assert "leaves its noise at step 40, but tau is not reached" in lead_verdict(never, "L0H1")
    late = lead_table(onset.astype({"onset": "Int64"}), STEPS, TAU)
    assert lead_verdict(late, "H").endswith("not before the candidate loss, which leaves its noise "
                                            "never")  # fmt: skip
    unmoved = lead_table(onset.assign(onset=pd.array([None, 70], dtype="Int64")), STEPS, TAU)
    assert lead_verdict(unmoved, "H").startswith("H never leaves its noise in value_patch")


@pytest.fixture
def few_steps(monkeypatch):
    """Four checkpoints of a tiny run are enough to follow a head."""
    monkeypatch.setattr(Run, "steps", [0, 40, 80, 120])


def test_a_tiny_run_by_the_selector_test_and_the_diagnostics(tiny_runs, few_steps):
    run = Run.open("lookup-12", tiny_runs)
    answer = selector.answer(Selector(run="lookup-12", root=tiny_runs, examples=12, early=1))
    table = answer.tables["signals"].set_index(["step", "head", "signal"])
    assert set(table.index.get_level_values("step")) == set(run.steps)
    step, task = run.steps[-1], run.task()
    model = run.model(step).eval()
    pairs = task.pairs(12, torch.Generator().manual_seed(1))
    places = {"selector": (8, 9), "decide": (10,), "answer": task.scored, "scored": task.scored}
    wanted = selector_evidence(model, pairs.clean, pairs.corrupt, **places)
    for row in wanted.table.to_dict("records"):
        for signal in SIGNALS:
            assert table.loc[(step, row["head"], signal), "value"] == pytest.approx(row[signal])
    effect = float(wanted.selector_effect.double().mean())
    assert table.loc[(step, MODEL, "selector_effect"), "value"] == pytest.approx(effect)
    loss = diagnostics(model, task, 12)["candidate_loss"]
    assert table.loc[(step, MODEL, "candidate_loss"), "value"] == pytest.approx(loss.value)
    assert list(answer.figures) == [f"Signals of {answer.tables['onsets']['head'][0]}", "Heads"]
    assert answer.summary[0].startswith(f"lookup-12: {len(run.steps)} checkpoints, head L0H")
    assert len(answer.tables["heads"]) == 2


def test_measured_once_and_cached(tiny_runs, few_steps, monkeypatch):
    request = Selector(run="lookup-6", root=tiny_runs, examples=4, early=1, head="L0H1")
    first = selector.answer(request)

    def never(self, model):
        raise AssertionError("measured again")

    monkeypatch.setattr(SelectorMeasure, "__call__", never)
    again = selector.answer(request)
    pd.testing.assert_frame_equal(first.tables["onsets"], again.tables["onsets"])
    assert "head L0H1; tau" in again.summary[0]


def test_a_run_without_a_log_is_judged_by_its_checkpoints(tiny_runs, few_steps, monkeypatch):
    request = Selector(run="lookup-6", root=tiny_runs, examples=12, early=1)
    dense = selector.answer(request).tables["onsets"]["tau"][0]
    monkeypatch.setattr(Run, "metrics", lambda self: pd.DataFrame({"step": [0]}))
    coarse = selector.answer(request).tables["onsets"]["tau"][0]
    assert 0 < coarse <= 40  # The first checkpoint after the crossing.
    assert 0 < dense <= 40
    assert coarse != dense


def test_what_is_refused(tiny_runs, monkeypatch):
    def refused(match, **options):
        with pytest.raises(InputError, match=match):
            selector.answer(Selector(root=tiny_runs, **options))

    refused(r"selector needs a run of the task marginals with variant=bz_to_a", run="chains")
    refused(
        r"short has 2 checkpoints; selector needs at least 4, of which the first 2 make the noise "
        r"band: train with a smaller --save-every",
        run="short",
    )
    monkeypatch.setattr(Run, "steps", [0, 40, 80])
    refused(r"early is 0; at least 1 checkpoint", run="lookup-6", early=0)
    refused(r"examples is 1; an interval needs at least 2", run="lookup-6", examples=1)
    refused(
        r"'L3H0' is not a head of this run; its heads: L0H0, L0H1",
        run="lookup-6", head="L3H0", examples=2, early=1,
    )  # fmt: skip
