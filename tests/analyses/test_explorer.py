import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from analyses.catalogue import Explorer
from analyses.command import main
from analyses.explorer import answer, rebuild_command
from analyses.explorer_data.components import position_labels
from analyses.explorer_data.course import chain_bands, curvature_points, phase_bands, update_tables
from analyses.hessian.surface import example_losses
from circuits import edge_effects
from circuits.direct_attribution import logit_attribution
from mechinterp.runs import Run
from mechinterp.tracing import PAIR_SEED

STEPS = (0, 64, 120)
SHORT = ("--steps", "0", "64", "120", "--examples", "8", "--jobs", "1")


def content(page):
    """The data inside a page."""
    start = page.index('<script id="data" type="application/json">') + 42
    return json.loads(page[start : page.index("</script>", start)])


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cache for all tests of this file, which look at the same checkpoints."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def answered(tiny_runs, tmp_path_factory, shared):
    """A small run with every option that is quick."""
    out = tmp_path_factory.mktemp("page") / "page.html"
    request = Explorer(
        run="lookup-12",
        root=tiny_runs,
        out=out,
        steps=STEPS,
        examples=8,
        by_position=True,
        prune=(120,),
        jobs=1,
        quiet=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MECHINTERP_CACHE", shared)
        return request, answer(request)


def test_the_page_holds_the_tables_and_their_numbers(answered, tiny_runs):
    _, found = answered
    run = Run.open("lookup-12", tiny_runs)
    task, model = run.task(), run.model(120).eval()
    pairs = task.pairs(8, torch.Generator().manual_seed(PAIR_SEED))
    effects = edge_effects(model, pairs.clean, "loss", ablation="zero", scored=task.scored).table
    edges = found.tables["edges"]
    last = edges[edges["step"] == 120].set_index("edge")["effect"]
    np.testing.assert_allclose(
        last[effects["edge"]].to_numpy(), effects["effect"], rtol=1e-5, atol=1e-6
    )
    shares = logit_attribution(model, pairs.clean, scored=task.scored).table.set_index("source")
    attribution = found.tables["attribution"]
    mine = attribution[attribution["step"] == 120].set_index("source")["contribution"]
    np.testing.assert_allclose(mine, shares["contribution"][mine.index], rtol=1e-5, atol=1e-6)
    (page,) = found.pages.values()
    (packed,) = content(page)["runs"]
    assert packed["steps"] == list(STEPS)
    names = packed["settings"][0]["edges"]["names"]
    values = packed["settings"][0]["edges"]["effect"]["values"]
    np.testing.assert_allclose(values[-len(names) :], last[names].to_numpy(), rtol=1e-6)


def test_every_way_of_ablating_is_a_setting_of_its_own(answered):
    _, found = answered
    (page,) = found.pages.values()
    (run,) = content(page)["runs"]
    settings = [(one["ablation"], one["granularity"], one["position"]) for one in run["settings"]]
    groups = ["BOS", "B", "z", "A", "SEP", "first_sep", "decide"]
    assert settings == [("zero", "head", group) for group in ["all", *groups]]
    kept = run["settings"][0]["circuits"]["120"]
    assert set(kept) < set(run["settings"][0]["edges"]["names"])


def test_attention_is_a_distribution_over_earlier_positions(answered):
    _, found = answered
    (page,) = found.pages.values()
    packed = content(page)["runs"][0]["attention"]
    assert packed["heads"] == ["L0H0", "L0H1"]
    assert packed["labels"][:3] == ["0 BOS", "1 B1", "2 B2"]


def test_provenance_names_what_decided_the_numbers(answered):
    _, found = answered
    facts = found.provenance["lookup-12"]
    assert len(facts["batch_sha256"]) == 64
    assert set(facts["checkpoints"]) == {"0", "64", "120"}
    assert facts["shown"]["seeds"] == {"mapping_seed": 42, "init_seed": 42, "data_seed": 0}


def test_the_command_rebuilds_the_page():
    request = Explorer(
        run="mine", steps=(0, 64), ablations=("zero", "mean"), by_position=True, jobs=1, quiet=True
    )
    assert rebuild_command(request) == (
        "python -m analyses explorer --run mine --steps 0 64 --ablations zero mean --by-position"
    )
    hostile = rebuild_command(Explorer(run="a b'; rm"))
    assert shlex.split(hostile)[5] == "a b'; rm"


def test_two_runs_and_the_file_that_was_asked_for(
    answered, shared, tiny_runs, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("MECHINTERP_CACHE", shared)
    out = tmp_path / "page.html"
    argv = ["explorer", "--run", "lookup-12", "--compare", "lookup-6", "--root", str(tiny_runs)]
    assert main([*argv, *SHORT, "--out", str(out)]) == 0
    said, progress = capsys.readouterr()
    assert said.startswith("lookup-12: 3 checkpoints, ")
    assert progress == f"wrote {out}\n"
    page = out.read_text(encoding="utf-8")
    assert [run["name"] for run in content(page)["runs"]] == ["lookup-12", "lookup-6"]
    assert shlex.join(["--compare", "lookup-6"]) in content(page)["command"]


def test_a_run_of_chains_has_phases_and_its_file_a_default_place(
    tiny_runs, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    argv = ["explorer", "--run", "chains", "--root", str(tiny_runs), "--examples", "8", "--quiet"]
    assert main([*argv, "--jobs", "1", "--checkpoints", "3"]) == 0
    assert capsys.readouterr() == ("", "")
    page = Path("traces/chains-explorer.html").read_text(encoding="utf-8")
    (run,) = content(page)["runs"]
    assert run["settings"][0]["granularity"] == "layer-qkv"
    assert run["tables"]["phases"]["rows"] >= 1
    assert run["notes"]["timeline"].startswith("Bands: the Bayes predictor")


def test_bands_meet_half_way_between_two_steps():
    table = pd.DataFrame({"step": [0, 10, 20, 40], "phase": ["1-Gen", "1-Gen", "mixed", "2-Gen"]})
    bands = chain_bands(table)
    assert bands.to_dict("list") == {
        "phase": ["1-Gen", "mixed", "2-Gen"],
        "start": [0, 15, 30],
        "end": [15, 30, 40],
    }


def test_a_marginals_run_is_cut_at_tau(reference):
    bands, note = phase_bands(Run.open(reference / "marginals-k20"), 8, True)
    assert list(bands["phase"]) == ["plateau", "approach", "after tau"]
    assert bands["end"][0] == pytest.approx(bands["end"][1] / 2)
    assert bands["end"][2] == 8000
    assert "tau" in note


def test_all_pairs_of_updates_are_compared(tiny_runs):
    run = Run.open("lookup-12", tiny_runs)
    tables, span = update_tables(run, True)
    cosines = tables["cosines"]
    model = cosines[cosines["group"] == "model"]
    n = model["step"].nunique() + 1
    assert span == 8
    assert len(model) == n * (n - 1) // 2
    steps = run.steps
    flat = {
        step: torch.cat([run.weights(step)[name].flatten() for name in sorted(run.weights(step))])
        for step in steps
    }
    first, later = flat[8] - flat[0], flat[40] - flat[32]
    cosine = torch.nn.functional.cosine_similarity(first.double(), later.double(), dim=0)
    row = model[(model["step"] == 0) & (model["lag"] == 4)]["cosine"].iloc[0]
    assert row == pytest.approx(float(cosine), abs=1e-5)


def test_curvature_is_that_of_as_many_examples_as_were_asked_for(tiny_runs, shared, monkeypatch):
    monkeypatch.setenv("MECHINTERP_CACHE", shared)
    run = Run.open("lookup-12", tiny_runs)
    request = Explorer(run="lookup-12", root=tiny_runs, examples=4, curvature=True, quiet=True)
    points = curvature_points(run, request).set_index("step")
    task, model = run.task(), run.model(120).double()
    losses = example_losses(model, task.evaluation(4), task.scored)
    slopes = torch.autograd.grad(losses.mean(), list(model.parameters()))
    norm = float(sum((slope**2).sum() for slope in slopes)) ** 0.5
    assert points.at[120, "grad_norm"] == pytest.approx(norm, rel=1e-6)
    other = example_losses(model, task.evaluation(8), task.scored).mean()
    assert other.item() != pytest.approx(losses.mean().item(), rel=1e-3)


def test_small_groups_name_their_positions(tiny_runs):
    labels = position_labels(Run.open("lookup-12", tiny_runs).task())
    assert labels[0] == "0 BOS"
    assert labels[1] == "1 B1"
    assert len(labels) == 15


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--run", "lookup-13"], ["'lookup-13'", "lookup-12"]),
        (["--run", "short"], ["short", "checkpoints"]),
        (["--run", "lookup-12", "--compare", "lookup-12"], ["the run itself", "leave --compare"]),
        (["--run", "lookup-12", "--examples", "1"], ["examples is 1", "at least 2"]),
        (["--run", "lookup-12", "--steps", "3"], ["no checkpoint at step 3", "step_0"]),
        (["--run", "lookup-12", "--ablations", "noise"], ["noise", "zero"]),
        (
            ["--run", "lookup-12", "--out", f"{__file__}/page.html"],
            ["a part of the path is a file"],
        ),
    ],
)
def test_a_mistake_is_one_line(options, words, tiny_runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["explorer", "--root", str(tiny_runs), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert all(word in err for word in words), err
    assert not Path("traces").exists()
