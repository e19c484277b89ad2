import json
import re
from pathlib import Path

import pandas as pd
import pytest

from analyses.claims import ledger, summary_line
from analyses.command import main
from analyses.ledger.claim import VERDICTS
from analyses.ledger.registry import CLAIMS
from analyses.ledger.store import EvidenceStore
from tests.analyses.ledger.planted import write_world
from tests.analyses.ledger.worlds import reproduced


@pytest.fixture
def some(tmp_path):
    """Evidence on four studies; the others are missing."""
    names = ("marginals-size", "marginals-reverse", "markov-kinetics", "minimal-models")
    write_world(reproduced(names), tmp_path / "evidence")
    return tmp_path / "evidence"


def test_the_printed_table_and_the_json_agree(some, tmp_path, capsys):
    argv = ["claims", "--evidence", str(some)]
    argv += ["--json", str(tmp_path / "l.json"), "--html", str(tmp_path / "l.html")]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    body = json.loads((tmp_path / "l.json").read_text())
    assert body["summary"] == lines
    assert max(map(len, lines)) <= 100
    rows = body["tables"]["claims"]
    assert [row["id"] for row in rows] == [claim.id for claim in CLAIMS]
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
    assert counts["reproduced"] == 20
    assert counts["not testable at this scale"] > 20
    assert lines[-1] == ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    assert lines[-1] == summary_line(EvidenceStore(some))
    for row in rows:
        start = next(at for at, line in enumerate(lines) if line.startswith(f"{row['id']} "))
        words = " ".join(line[22:36].strip() for line in lines[start : start + 2])
        assert row["verdict"].startswith(words.strip()) or words.startswith(row["verdict"])
        if row["verdict"] == "reproduced" and row["value"] is not None:
            assert f"evidence {row['id']}" in body["tables"]
            assert f"{row['value']:.3g}"[:4] in " ".join(
                line[53:75] for line in lines[start : start + 3]
            )
    page = (tmp_path / "l.html").read_text()
    assert page.count("Plotly.newPlot") >= len(CLAIMS)
    assert "<script src=" not in page
    assert all(f"{claim.id}: " in page for claim in CLAIMS)


def test_one_claim_in_full(some, capsys):
    assert main(["claims", "--evidence", str(some), "--only", "tau-exponent"]) == 0
    text = capsys.readouterr().out
    assert "holds: exponent between 0.9 and 1.4" in text
    assert "verdict: reproduced" in text
    assert "mechinterp.sweep checkpoints/evidence/marginals-size/spec.toml" in text
    assert "paper: 1.194 (1.137 to 1.308)" in text
    assert text.splitlines()[-1].startswith("1 reproduced, 0 in part")


def test_a_changed_table_changes_the_verdict(some):
    table = some / "marginals-size" / "plateau-taus.csv"
    untouched = ["plateau-height", "tau-fixed-d", "asymmetry-equal", "cliff-law"]
    names = ["tau-exponent", *untouched]
    before = {one.claim.id: one.verdict for one in ledger(EvidenceStore(some), names)}
    rows = pd.read_csv(table)
    # D is 4,000 in the fourth setting: a wait ten times as long there is another law.
    slow = rows["run"].str.startswith("3-")
    rows.loc[slow, ["paper", "sound"]] *= 10
    rows.to_csv(table, index=False)
    after = {one.claim.id: one.verdict for one in ledger(EvidenceStore(some), names)}
    assert before["tau-exponent"] == "reproduced"
    assert after["tau-exponent"] == "not reproduced"
    assert [before[name] for name in untouched] == [after[name] for name in untouched]


def test_mistakes_are_told_in_one_line(some, tmp_path, capsys):
    assert main(["claims", "--evidence", str(tmp_path / "none")]) == 2
    assert "is no folder of evidence" in capsys.readouterr().err
    assert main(["claims", "--evidence", str(some), "--only", "tau-exponnt"]) == 2
    assert "there is no claim 'tau-exponnt'; near ones: tau-exponent" in capsys.readouterr().err
    (some / "marginals-size" / "plateau-taus.csv").write_text("definition,sound\na,1\n")
    assert main(["claims", "--evidence", str(some), "--only", "tau-exponent"]) == 2
    assert "plateau-taus.csv has no column run" in capsys.readouterr().err


def test_a_lost_column_is_told_in_one_line(some, capsys):
    table = some / "marginals-size" / "plateau-taus.csv"
    pd.read_csv(table).drop(columns="sound").to_csv(table, index=False)
    assert main(["claims", "--evidence", str(some), "--only", "tau-fixed-d"]) == 2
    said = capsys.readouterr().err
    assert "the evidence for tau-fixed-d lacks 'sound': gather marginals-size anew" in said


def test_the_ledger_covers_both_papers_and_lists_seven_mechanisms():
    ids = [claim.id for claim in CLAIMS]
    assert sum(name.startswith("not-") for name in ids) == 7
    assert all("our list" in c.source for c in CLAIMS if c.id.startswith("not-"))
    assert {claim.paper for claim in CLAIMS} == {"marginals", "markov"}
    for claim in CLAIMS:
        assert re.search(r"\d|most runs|never|essential|bounded|outside|larger at", claim.criterion)
        assert claim.source
        assert claim.paper_value


def test_every_study_of_the_committed_evidence_is_read_by_a_claim():
    folder = Path(__file__).parents[2] / "checkpoints" / "evidence"
    known = {study for claim in CLAIMS for study in claim.studies} | {"paper-scale"}
    assert {path.name for path in folder.iterdir() if path.is_dir()} <= known
