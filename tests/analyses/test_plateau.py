import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analyses import plateau
from analyses.catalogue import Plateau
from analyses.plateau import MEASURES, plateau_tables, plateau_verdict
from analyses.waiting.level import knowledge_share, onset_table, verdict
from circuits.errors import InputError
from mechinterp.config import MarginalsConfig, RunConfig
from mechinterp.runs import Run
from mechinterp.tasks import make_task

LINES = make_task(MarginalsConfig(k=10, n_b=50)).reference_lines()
LN_K = math.log(10)


def planted(mass, first, target, gap_at=600, fall_at=1000):
    """A plateau with a given state of knowledge; the z-gap, then the loss, change along ramps."""
    steps = np.arange(0, 2001, 20)
    series = pd.DataFrame({"step": steps, "candidate_mass": mass, "first_token_ce": first})
    series["target_ce"] = target
    series["z_gap"] = np.clip((steps - gap_at) / 100, 0, 5)
    series["candidate_loss"] = np.clip(LN_K * (1 - (steps - fall_at) / 500), 0, LN_K)
    for name in MEASURES:
        series[f"{name}_se"] = 0.01
    return series


IGNORANT = (10 / 36, math.log(36), 0.8 * math.log(36))
MARGINAL = (1.0, LN_K, LN_K / 5)


def test_a_planted_marginal_and_planted_ignorance_are_told_apart():
    for state, words in ((IGNORANT, "ignorance, not a marginal"), (MARGINAL, "a marginal")):
        tables = plateau_tables(planted(*state), LINES, 64)
        level = tables["level"].set_index("quantity")
        assert level.at["height", "value"] == pytest.approx(1.0)  # both score ln K
        assert plateau_verdict(tables["level"]) == words
        share = float(words == "a marginal")
        for name in ("candidate_mass", "target_ce", "first_token_ce"):
            assert level.at[name, "knowledge_share"] == pytest.approx(share, abs=1e-6)
    half = plateau_tables(planted(0.64, 3.0, 1.6), LINES, 64)
    assert "50% of the way" in plateau_verdict(half["level"])


def test_where_mass_tells_nothing_the_target_loss_decides():
    lines = {**LINES, "ignorant_candidate_mass": 1.0}
    tables = plateau_tables(planted(1.0, *IGNORANT[1:]), lines, 64)
    assert plateau_verdict(tables["level"]) == "ignorance, not a marginal"


def test_planted_onset_and_lead():
    sound = onset_table(planted(*IGNORANT), LN_K).set_index("reading").loc["sound"]
    assert sound["onset"] == pytest.approx(610)  # the ramp passes 0.1 there
    falls = 1000 + 500 * 0.1 / LN_K
    assert sound["falls"] == pytest.approx(falls, abs=1)
    assert sound["lead_share"] == pytest.approx((falls - 610) / 1250, abs=2e-3)
    assert sound["lead_low"] < sound["lead"] < sound["lead_high"]


def test_the_height_is_not_made_right_by_choosing_rows():
    series = planted(*IGNORANT)
    series.loc[series["step"] < 300, "candidate_loss"] *= 1.5
    level = plateau_tables(series, LINES, 64)["level"].set_index("quantity")
    assert level.at["height", "value"] > 1.15


@pytest.mark.parametrize(
    ("share", "name"),
    [(0.95, "marginal"), (0.5, "between"), (0.02, "ignorance"), (math.nan, "undefined")],
)
def test_verdicts(share, name):
    assert verdict(share) == name


def test_a_share_needs_a_way_to_go():
    assert math.isnan(knowledge_share({"value": 0.5, "ignorant": 1.0, "marginal": 1.0}))


def _rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_the_reference_run_by_a_plain_loop_over_its_log(reference):
    answer = plateau.answer(Plateau(run=str(reference / "marginals-k20")))
    taus = answer.tables["taus"].set_index("definition")
    rows, ln_k = _rows(reference / "marginals-k20"), math.log(20)
    first = next(row["step"] for row in rows if row["candidate_loss"] < 0.5 * ln_k)
    assert taus.at["a", "paper"] == first
    assert taus.at["a", "paper_low"] <= first <= taus.at["a", "paper_high"]
    assert abs(taus.at["a", "sound"] - first) < 400
    window = [row["candidate_loss"] for row in rows if 100 <= row["step"] <= 500]
    level = answer.tables["level"].set_index("quantity")
    assert level.at["height", "paper"] == pytest.approx(np.mean(window) / ln_k)
    assert level.at["height", "value"] == pytest.approx(1.0, abs=0.05)
    assert "ignorance, not a marginal" in "\n".join(answer.summary)
    assert len(answer.figures) == 2


def test_checkpoints_measured_anew_give_what_was_logged(tiny_runs):
    from_log = plateau.answer(Plateau(run="lookup-12", root=tiny_runs)).tables["series"]
    request = Plateau(run="lookup-12", root=tiny_runs, source="checkpoints", examples=12)
    measured = plateau.answer(request).tables["series"]
    assert measured["step"].tolist() == list(range(0, 121, 8))
    logged = from_log.set_index("step").loc[measured["step"]].reset_index()
    pd.testing.assert_frame_equal(
        measured, logged[measured.columns], check_exact=False, atol=1e-5, rtol=1e-4
    )


def test_wrong_runs_are_refused_with_what_is_needed(tiny_runs):
    with pytest.raises(InputError, match=r"plateau needs .* marginals .* chains has .*markov_ch"):
        plateau.answer(Plateau(run="chains", root=tiny_runs))
    with pytest.raises(InputError, match=r"log of short has 3 rows .* at least 8 .*--eval-every"):
        plateau.answer(Plateau(run="short", root=tiny_runs))
    with pytest.raises(InputError, match=r"short has 2 checkpoints; at least 8 .*--save-every"):
        plateau.answer(Plateau(run="short", root=tiny_runs, source="checkpoints"))
    with pytest.raises(InputError, match=r"examples is 1"):
        plateau.answer(Plateau(run="lookup-6", root=tiny_runs, examples=1))


def test_a_variant_without_a_plateau_is_refused():
    run = Run(Path("plain"), RunConfig(MarginalsConfig(variant="b_to_a")), {})
    with pytest.raises(InputError, match=r"plain has variant=b_to_a, k=20"):
        plateau.check_marginals(run, "plateau")


def test_a_log_without_its_measures_is_refused(tiny_runs, monkeypatch):
    run = Run.open("lookup-6", tiny_runs)
    bare = run.metrics().drop(columns=["z_gap"])
    monkeypatch.setattr(Run, "metrics", lambda self: bare)
    with pytest.raises(InputError, match=r"lacks z_gap"):
        plateau.log_series(run)
