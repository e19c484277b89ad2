import re
from pathlib import Path

import pytest

from analyses.claims import evidence_folder, summary_line
from analyses.ledger.made_by import EVIDENCE, PAPER_SCALE, commands_of
from analyses.ledger.registry import CLAIMS
from analyses.ledger.store import EvidenceStore
from mechinterp.sweep.planning import planned
from mechinterp.sweep.spec import read_spec

ROOT = Path(__file__).parents[3]

STUDIES = sorted({study for claim in CLAIMS for study in claim.studies} - {"minimal-models"})

LARGEST = 60_000_000
"""Bytes that all of the evidence may have."""


def test_the_readme_says_what_the_committed_tables_say():
    text = (ROOT / "README.md").read_text()
    found = re.search(r"<!-- ledger -->\n(.*?)\n<!-- end of ledger -->", text, re.DOTALL)
    assert found, "README.md has lost the markers of the ledger's summary line"
    said = " ".join(found[1].replace("**", "").split())
    assert said == f"{summary_line(EvidenceStore(evidence_folder()))}."


def test_the_evidence_is_small():
    sizes = [path.stat().st_size for path in (ROOT / EVIDENCE).rglob("*") if path.is_file()]
    assert 0 < sum(sizes) < LARGEST


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_has_a_description_for_a_large_machine(study):
    path = ROOT / PAPER_SCALE / f"{study}.toml"
    assert str(path.relative_to(ROOT)) in commands_of(study).at_scale
    runs = planned(read_spec(path))
    assert len({run.config.model.init_seed for run in runs}) >= 10
    assert len({run.config.training.data_seed for run in runs}) >= 10
    if study.startswith("marginals"):
        assert {run.config.model.n_layers for run in runs} == {4}
        assert {run.config.model.d_model for run in runs} == {128}
    else:
        assert {run.config.task.n_states for run in runs} == {10}
        assert {run.config.model.d_model for run in runs} == {64}
