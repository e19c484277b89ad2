"""Claims about how the plateau ends: in a snap, and with z in use before it."""

import pandas as pd

from analyses.ledger.claim import Claim, Measured, Part
from analyses.ledger.criteria import above, inside, most_part, shown
from analyses.ledger.plateau_claims import SIZES
from analyses.ledger.seeds import (
    least_seeds,
    overall,
    per_setting,
    scale_of,
    truth,
)
from analyses.ledger.store import EvidenceStore
from analyses.ledger.waiting import arrived, waits
from analyses.rows import numbers


def snap(store: EvidenceStore) -> Measured:
    """Are the members of a group learned together?"""
    table = store.joined(SIZES, "snap-verdict")
    icc = overall(table, "icc")
    null = int((table["paper_of_null"] == "snap").sum())
    parts = (
        most_part(
            "the paper's criterion: at most 5 % of groups at 80 % at tau/2",
            (table["paper"] == "snap").to_list(),
        ),
        most_part(
            "groups more uneven than independent items allow (Holm over checkpoints)",
            truth(table["collective"]),
        ),
        Part("intraclass correlation above 0.1", above(icc, 0.1), shown(icc)),
    )
    return Measured(
        parts,
        icc,
        "intraclass corr.",
        least_seeds(table, ("k", "n_b")),
        scale_of(table),
        per_setting(table, "icc", ("k", "n_b")),
        {"independent": 0.0},
        f"independent items would pass the paper's criterion in {null} of {len(table)} runs",
    )


def z_gap_lead(store: EvidenceStore) -> Measured:
    """How long before the loss does the z-gap rise, as a share of tau?"""
    table = store.joined(SIZES, "plateau-onset")
    readings = {one: pd.DataFrame(table[table["reading"] == one]) for one in ("paper", "sound")}
    left = {}
    for one, rows in readings.items():
        kept, left[one] = arrived(rows.assign(time=numbers(rows, "lead_share")), ("k", "n_b"))
        readings[one] = kept.drop(columns="time")
    paper, sound = (overall(readings[one], "lead_share") for one in ("paper", "sound"))
    times = waits(store, SIZES)[["run", "time"]]
    order = readings["sound"].merge(times, on="run").dropna(subset=["time"])
    parts = (
        most_part(
            "z-gap of 0.1 nat before the candidate loss is at half of ln K",
            (order["onset"] < order["time"]).to_list(),
        ),
        Part("lead over tau c between 0.3 and 0.7, the paper's way", inside(paper, 0.3, 0.7),
             shown(paper)),
        Part("at equal amounts (0.1 nat of each) still above 0.25 tau", above(sound, 0.25),
             shown(sound)),
    )  # fmt: skip
    each = per_setting(readings["paper"], "lead_share", ("k", "n_b"))
    return Measured(
        parts,
        paper,
        "tau c",
        least_seeds(readings["paper"], ("k", "n_b")),
        scale_of(readings["paper"]),
        each,
        {"paper": 0.52},
        "the paper's thresholds are unequal, which builds a lead in"
        f"{left['paper'] and '; '}{left['paper']}",
    )


CLAIMS = (
    Claim(
        "collective-snap",
        "marginals",
        "The K answers of a group are learned together, in one snap.",
        "0 % of groups at 80 % at tau/2",
        "the repository's post-hoc test, one seed; a bar of 80 % is crossed suddenly by "
        "independent items as well",
        "the paper's criterion in most runs, groups more uneven than independence in most runs, "
        "intraclass correlation above 0.1",
        (SIZES,),
        snap,
    ),
    Claim(
        "z-gap-lead",
        "marginals",
        "z is used long before the loss falls: by about half of the waiting time.",
        "0.52 +- 0.14 tau",
        "the repository's post-hoc table, one seed a K; thresholds unequal",
        "z-gap rises before tau in most runs; lead 0.3 to 0.7 of tau c; above 0.25 of tau a at "
        "equal amounts",
        (SIZES,),
        z_gap_lead,
    ),
)
