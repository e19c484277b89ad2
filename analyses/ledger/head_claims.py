"""Claims about the head that routes z: which one, in which layer, how early, how much."""

import math

import numpy as np
import pandas as pd

from analyses.ledger.claim import Claim, Measured, Part
from analyses.ledger.criteria import above, below, inside, most_part, shown
from analyses.ledger.seeds import only, over_seeds, overall, scale_of, seeds_in, share
from analyses.ledger.store import EvidenceStore
from analyses.ledger.waiting import waits
from analyses.rows import numbers, records

HEADS = "marginals-heads"

RANKED_BY = "value_patch"
"""The signal that names the head; see `circuits.selector_verdict`."""

PAPER_HEAD, PAPER_NATS = "L0H3", 1.722

AT_TAU = 1.0, 2.0
"""Nats that the leading head may cost at tau: what is portable in the paper's tables."""

SEEDS = 8
"""Initialisations that the question of the head's identity needs."""


def shared_mapping(store: EvidenceStore) -> str:
    """Says over how many mappings the runs of the study spread."""
    runs = store.runs(HEADS)
    if "mapping_seed" not in runs:
        return "mappings unknown"
    mappings, seeds = int(runs["mapping_seed"].nunique()), seeds_in(runs)
    if mappings == 1:
        return f"the {seeds} seeds of weights and data share one mapping"
    return f"{seeds} seeds of weights and data over {mappings} mappings"


def ablations(store: EvidenceStore) -> pd.DataFrame:
    """Gives one row a run: the greatest effect of ablating a head (nats) at 1/4, 1 and 2 tau, which
    head that is at tau, the greatest of layer 0 at 2 tau, and the head that leads by value patching
    on the last checkpoint."""
    signals = store.joined(HEADS, "selector-signals")
    taus = waits(store, HEADS).set_index("run")["time"]
    rows = []
    for name, group in signals.groupby("run"):
        tau = float(taus.get(name, math.nan))
        first = group.iloc[0]
        row = {n: first[n] for n in ("run", "rank", "init_seed", "data_seed") if n in group}
        patched = group[group["signal"] == RANKED_BY]
        row["leads"] = _top(patched, float(patched["step"].max()))[0]
        zeroed = group[(group["signal"] == "ablation") & (group["head"] != "model")]
        for label, times in (("quarter", 0.25), ("tau", 1.0), ("twice", 2.0)):
            row[f"{label}_head"], row[label] = _top(zeroed, _nearest(zeroed, times * tau))
        zero = zeroed[zeroed["head"].str.startswith("L0")]
        row["layer0_twice"] = _top(zero, _nearest(zero, 2 * tau))[1]
        rows.append(row)
    return pd.DataFrame(rows)


def _nearest(table: pd.DataFrame, goal: float) -> float:
    steps = table["step"].to_numpy(float)
    if len(steps) == 0 or not math.isfinite(goal):
        return math.nan
    return float(steps[np.abs(steps - goal).argmin()])


def _top(table: pd.DataFrame, step: float) -> tuple[str, float]:
    here = table[(table["step"] == step) & table["value"].notna()]
    if here.empty:
        return "none", math.nan
    best = max(records(here), key=lambda row: row["value"])
    return str(best["head"]), float(best["value"])


def routing(store: EvidenceStore) -> Measured:
    """How much does the head carry, where, and from when on?"""
    table = ablations(store)
    table = only(table, table["tau"].notna(), "ablation near a tau that was reached")
    found = {n: over_seeds(numbers(table, n)) for n in ("quarter", "tau", "layer0_twice")}
    parts = (
        most_part(
            "the head that costs most at tau is in layer 0",
            [str(head).startswith("L0") for head in table["tau_head"]],
        ),
        Part("next to nothing at tau/4 (below 0.1 nat)", below(found["quarter"], 0.1),
             shown(found["quarter"])),
        Part("at tau between 1 and 2 nats", inside(found["tau"], *AT_TAU), shown(found["tau"])),
        Part("at 2 tau above 1 nat, in layer 0", above(found["layer0_twice"], 1.0),
             shown(found["layer0_twice"])),
    )  # fmt: skip
    rows = [
        {"label": f"{label}, {row['run']}", "value": row[column]}
        for column, label in (("quarter", "tau/4"), ("tau", "tau"), ("twice", "2 tau"))
        for row in records(table)
    ]
    return Measured(
        parts,
        found["tau"],
        "nats at tau",
        seeds_in(table),
        scale_of(store.runs(HEADS)),
        pd.DataFrame(rows),
        {"paper, at tau": PAPER_NATS},
        "a head's output is replaced by its mean at each position (in the paper by zero, or by one "
        "mean over positions, 1.763); mean loss over the 5 scored tokens in both; "
        + shared_mapping(store),
    )


def identity(store: EvidenceStore) -> Measured:
    """Is it the same head under other initialisations?"""
    table = ablations(store)
    table = only(table, table["leads"] != "none", f"effect of {RANKED_BY}")
    same = [head == PAPER_HEAD for head in table["leads"]]
    counts = table["leads"].value_counts()
    first = [str(head).startswith("L0") for head in table["leads"]]
    rows = [
        {"label": head, **share([one == head for one in table["leads"]])._asdict()}
        for head in counts.index
    ]
    return Measured(
        (most_part(f"{PAPER_HEAD} routes z whatever the initial weights", same),),
        share(same),
        f"share {PAPER_HEAD}",
        seeds_in(table),
        scale_of(store.runs(HEADS)),
        pd.DataFrame(rows),
        note="by head: "
        + ", ".join(f"{head} {n}" for head, n in counts.items())
        + f"; in layer 0 in {sum(first)} of {len(first)}; all of the paper's runs share one "
        f"initialisation, of ours {shared_mapping(store)}",
    )


def lead(store: EvidenceStore) -> Measured:
    """How long before tau does the head assemble, and is that before the loss falls?"""
    own = led(store)
    found, ahead = overall(own, "lead"), overall(own, "ahead")
    # A loss that never falls has been preceded; a head that never assembles precedes nothing.
    pairs = [(row["onset"], row["falls"]) for row in records(own)]
    before = [
        bool(not math.isnan(head) and (math.isnan(fall) or head < fall)) for head, fall in pairs
    ]
    rows = [
        {"label": row["run"], "value": row["lead"], "low": row["lead_low"],
         "high": row["lead_high"]}
        for row in records(own)
    ]  # fmt: skip
    return Measured(
        (
            Part("the head leaves its noise 0.3 to 0.7 of tau ahead of tau",
                 inside(found, 0.3, 0.7), shown(found)),
            most_part("and before the candidate loss falls from its plateau", before),
        ),
        found,
        "tau",
        seeds_in(own),
        scale_of(store.runs(HEADS)),
        pd.DataFrame(rows),
        {"paper, z gap": 0.5},
        f"{shown(ahead)} of tau ahead of the fall of the loss, whose own interval within a run is "
        f"wide: ahead of its early end in {sum(own['onset'] < own['falls_low'])} of {len(own)}; "
        + shared_mapping(store),
    )  # fmt: skip


def led(store: EvidenceStore) -> pd.DataFrame:
    """Gives one row a run: when the head that leads by value patching leaves its noise (`onset`,
    its first checkpoint outside), how long ahead of tau that is (`lead`, the middle of the two
    checkpoints around it, in tau), when the loss falls from its plateau (`falls`, by
    `analyses.waiting.lead`), and how long ahead of that (`ahead`, in tau)."""
    onsets = store.joined(HEADS, "selector-onsets")
    own = only(onsets, onsets["signal"] == RANKED_BY, f"onset of {RANKED_BY}")
    ends = plateau_ends(store)
    own = own.assign(**{name: own["run"].map(ends[name]) for name in ("falls", "falls_low")})
    own = own.assign(lead=(own["lead_low"] + own["lead_high"]) / 2)
    # The loss's own onset among the signals is outside a band of the untrained model, which its
    # first, unrelated descent leaves in some runs; the fall from the plateau is another thing.
    return own.assign(ahead=own["falls"] / own["tau"] - 1 + own["lead"])


def plateau_ends(store: EvidenceStore) -> pd.DataFrame:
    """Gives, by run, when z comes to matter (`onset`), when the loss falls from its plateau
    (`falls`, at the earliest `falls_low`; steps, NaN for never), and the earlier of the two
    (`end`)."""
    table = store.table(HEADS, "plateau-onset")
    table = only(table, table["reading"] == "sound", "end of a plateau").set_index("run")
    kept = pd.DataFrame(table[["onset", "falls", "falls_low"]])
    return kept.assign(end=kept[["onset", "falls"]].min(axis=1))


CLAIMS = (
    Claim(
        "selector-routing",
        "marginals",
        "A layer-0 head routes z: without it the loss is 1.72 nats higher in mid-transition.",
        "1.722 nats (K 20, step 3900)",
        "the repository's ablation table, one seed; the loss is the mean over all 5 target tokens",
        "top head in layer 0 in most runs; below 0.1 nat at tau/4, 1 to 2 nats at tau, above 1 nat "
        "at 2 tau",
        (HEADS,),
        routing,
    ),
    Claim(
        "selector-identity",
        "marginals",
        "That head is L0H3.",
        "L0H3 at K 10 and K 20",
        "the repository's ablation table; its model factory fixes the seed of the initial weights, "
        "so the two are one initialisation",
        "L0H3 leads by value patching on the last checkpoint in most of at least 8 initialisations",
        (HEADS,),
        identity,
        SEEDS,
    ),
    Claim(
        "selector-lead",
        "marginals",
        "The head assembles silently: about half of the waiting time ahead of tau, and before the "
        "loss falls.",
        "about 0.5 tau (of the z gap)",
        "second-hand: a summary has z come into use that much before the fall, and of the head "
        "only that it forms before it; the repository's attention onsets are of another run than "
        "its losses",
        "its value-patching effect leaves its noise 0.3 to 0.7 of tau ahead of tau, and before "
        "the candidate loss falls from its plateau in most runs",
        (HEADS,),
        lead,
    ),
)
