"""The ledger: every claim of both papers beside what our runs show, with a verdict from code."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analyses.answer import Answer
from analyses.catalogue import Claims
from analyses.ledger.claim import Claim, Judged, judge
from analyses.ledger.figures import claim_figure
from analyses.ledger.made_by import EVIDENCE
from analyses.ledger.registry import CLAIMS
from analyses.ledger.report import claims_table, details, parts_table, printed, summary_of
from analyses.ledger.store import EvidenceStore
from circuits.errors import InputError, near_matches


def answer(request: Claims) -> Answer:
    """Weighs every claim, or those asked for, against the evidence on disk.

    Raises:
        InputError: no folder of evidence, a damaged table, or no claim of that name.
    """
    store = EvidenceStore(request.evidence or evidence_folder())
    judged = ledger(store, request.only)
    lines = printed(judged)
    if request.only:
        lines = [line for one in judged for line in [*details(one), ""]] + [summary_of(judged)]
    tables = {"claims": claims_table(judged), "parts": parts_table(judged)}
    tables |= {
        f"evidence {one.claim.id}": _plain(one.measured.table)
        for one in judged
        if len(one.measured.table)
    }
    studies = sorted({study for one in judged for study in one.claim.studies})
    return Answer(
        summary=tuple(lines),
        tables=tables,
        figures={f"{one.claim.id}: {one.verdict}. {one.claim.sentence}": claim_figure(one)
                 for one in judged},
        provenance={
            "evidence": {study: store.made(study) for study in studies},
            "only": list(request.only),
        },
    )  # fmt: skip


def ledger(store: EvidenceStore, only: Sequence[str] = ()) -> list[Judged]:
    """Weighs claims, in the order of the ledger.

    Args:
        store: the evidence.
        only: names of claims; all if none is given.

    Raises:
        InputError: no claim of that name; near ones are named.
    """
    return [judge(claim, store) for claim in _named(only)]


def summary_line(store: EvidenceStore) -> str:
    """How many claims are reproduced, in part, not, and not testable: the line in the README."""
    return summary_of(ledger(store))


def evidence_folder() -> Path:
    """Gives the folder of the committed evidence, beside the packages."""
    return Path(__file__).resolve().parents[1] / EVIDENCE


def _named(only: Sequence[str]) -> list[Claim]:
    known = {claim.id: claim for claim in CLAIMS}
    for name in only:
        if name not in known:
            near = near_matches(name, list(known))
            raise InputError(f"there is no claim {name!r}; near ones: {near}")
    return [claim for claim in CLAIMS if not only or claim.id in only]


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """A table as it can be kept: plain numbering."""
    return table.reset_index(drop=True)
