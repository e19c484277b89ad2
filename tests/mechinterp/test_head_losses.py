"""Four losses without each head, against the task's own diagnostics of the ablated model."""

import json

import numpy as np
import pytest
import torch

from circuits.ablated_model import ablated
from circuits.errors import InputError
from circuits.head_ablation import head_effects
from mechinterp.findings.heads import MEASURES, head_losses, heads_finding
from mechinterp.runs import Run
from mechinterp.tasks import Pairs
from mechinterp.tasks.marginals_diagnostics import (
    candidate_log_probs,
    candidate_loss,
    score,
    z_gap,
)
from mechinterp.tasks.marginals_fibres import answer_slot
from mechinterp.trace import main
from tests.reference.attributions import REFERENCE

NAMES = ["L0H0", "L0H1", "L1H0", "L1H1"]


@pytest.fixture(scope="module")
def lookup(tiny_runs):
    run = Run.open("lookup", tiny_runs)
    model, task = run.model(40).eval(), run.task()
    return model, task, task.pairs(12, torch.Generator().manual_seed(1))


def by_the_task(model, task, tokens):
    """The measures of any function from tokens to logits, one value an example."""
    scores = score(model, task, tokens)
    return {
        "first_token_ce": -scores.targets[:, 0],
        "target_ce": -scores.targets.mean(-1),
        "candidate_loss": candidate_loss(
            candidate_log_probs(model, task, tokens), answer_slot(task, tokens)
        ),
        "z_gap": z_gap(model, task, tokens),
    }


@pytest.mark.parametrize("ablation", ["zero", "mean", "mean-all"])
def test_each_measure_is_the_tasks_own_under_the_ablation(lookup, ablation):
    model, task, pairs = lookup
    found = head_losses(model, task, pairs, ablation)
    given = {} if ablation == "zero" else {"reference": pairs.clean[:, :-1]}
    runs = [model, *(ablated(model, name, ablation, **given) for name in NAMES)]
    for row, run in enumerate(runs):
        wanted = by_the_task(run, task, pairs.clean)
        for name in MEASURES:
            torch.testing.assert_close(
                found.per_example[name][row], wanted[name], atol=1e-5, rtol=0
            )
    assert (found.per_example["z_gap"][1:] - found.per_example["z_gap"][:1]).abs().max() > 1e-4


@pytest.mark.parametrize("ablation", ["zero", "patch", "resample"])
def test_the_rise_of_the_target_loss_is_the_effect_of_head_ablation(lookup, ablation):
    model, task, pairs = lookup
    corrupt = pairs.corrupt if ablation == "patch" else None
    effects = head_effects(model, pairs.clean, "loss", ablation, corrupt, scored=task.scored)
    found = head_losses(model, task, pairs, ablation).table.set_index("head")
    assert list(found.index) == ["none", *effects.table.sort_values(
        "effect", ascending=False)["head"]]  # fmt: skip
    wanted = effects.table.set_index("head").loc[NAMES]
    for ours, theirs in (("", "effect"), ("_low", "low"), ("_high", "high")):
        rise = found.loc[NAMES, f"target_ce_rise{ours}"].to_numpy()
        assert np.allclose(rise, wanted[theirs].to_numpy(), atol=1e-5)


def test_the_reference_run_loses_more_without_its_routing_layer():
    """On the plateau z hardly matters to the first token, while ablation wrecks the candidates."""
    run = Run.open(REFERENCE / "marginals-k20")
    model, task = run.model(4000).eval(), run.task()
    pairs = task.pairs(8, torch.Generator().manual_seed(1))
    finding = heads_finding(model, task, pairs)
    table = finding.tables["heads"].set_index("head")
    assert table.index[0] == "none"
    assert {head[:2] for head in table.index[1:5]} == {"L0"}
    assert table.loc["L0H3", "candidate_loss_rise_low"] > 0.3
    assert abs(table.loc["L0H3", "first_token_ce_rise"]) < 0.3
    assert "by the rise of target_ce" in finding.summary[0]
    assert finding.summary[1].split() == ["head", *MEASURES]
    assert list(finding.figures) == ["Head ablation"]


def test_a_partner_is_needed_for_patching(lookup):
    model, task, pairs = lookup
    with pytest.raises(InputError, match="corrupt equals clean"):
        head_losses(model, task, Pairs(pairs.clean, pairs.clean), "patch")


def test_the_trace_prints_and_keeps_all_four(tiny_runs, tmp_path, capsys):
    asked = ["--run", "lookup", "--ckpt", "last", "--root", str(tiny_runs), "--examples", "12"]
    files = ["--json", str(tmp_path / "t.json"), "--html", str(tmp_path / "t.html")]
    assert main([*asked, *files, "--top", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(printed) if line.startswith("Heads ablated"))
    assert printed[head].split()[-4:] == list(MEASURES)
    rows = json.loads((tmp_path / "t.json").read_text())["mechanisms"]["heads"]["tables"]["heads"]
    values = {row["head"]: [f"{row[name]:.3f}" for name in MEASURES] for row in rows}
    shown = {line.split()[0]: line.split()[-4:] for line in printed[head + 1 : head + 6]}
    assert shown == values
    assert set(shown) == {"none", *NAMES}
    assert "by the effect on target_ce; the rest measured under the ablation, on" in " ".join(
        printed
    )


def test_the_heads_can_be_run_alone(tiny_runs, tmp_path, capsys):
    asked = ["--run", "lookup", "--ckpt", "last", "--root", str(tiny_runs), "--examples", "12"]
    assert main([*asked, "--mechanism", "heads", "--html", str(tmp_path / "t.html")]) == 0
    printed = capsys.readouterr().out
    assert "Heads under zero ablation on 12 examples (nats), by the rise of target_ce" in printed
    assert "Selector head" not in printed
