"""Claims about heads: the statistical induction head, the task-recognition head, task vectors."""

import math

import pandas as pd

from analyses.ledger.chain_runs import CHAINS
from analyses.ledger.claim import Claim, Estimate, Measured, Part
from analyses.ledger.criteria import above, below, most_part, shown
from analyses.ledger.seeds import over_seeds, per_setting, scale_of, seeds_in
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.traced import ESSENTIAL, in_phase

CLEAR = 0.8
"""Score from which a head counts as looking back, or matching; and the share of the gap that a task
vector has to move."""


def _best(table: pd.DataFrame, score: str, layer: int) -> pd.DataFrame:
    """The greatest score of a layer's heads, a row a run."""
    own = table[(table["layer"] == layer) & table[score].notna()]
    if own.empty:
        raise NoEvidence(f"no head of layer {layer} has a score {score}")
    return pd.DataFrame(own.loc[own.groupby("run")[score].idxmax()])


def _by_rank(table: pd.DataFrame, column: str) -> Estimate:
    return over_seeds(table.groupby("rank")[column].mean())


def induction(store: EvidenceStore) -> Measured:
    """Is there a statistical induction head in 2-Gen?"""
    scores = in_phase(store, "trace-induction-induction", "2-Gen")
    back, match = _best(scores, "previous_token", 0), _best(scores, "match", 1)
    found = {"looks back": _by_rank(back, "previous_token"), "matches": _by_rank(match, "match")}
    even = _by_rank(match, "matched_uniformity")
    cuts = in_phase(store, "trace-induction-k_composition", "2-Gen")
    parts = (
        Part(f"a first-layer head looks at the previous token, score above {CLEAR}",
             above(found["looks back"], CLEAR), shown(found["looks back"])),
        Part(f"a second-layer head matches, score above {CLEAR}",
             above(found["matches"], CLEAR), shown(found["matches"])),
        Part(f"evenly over the matches, above {CLEAR}", above(even, CLEAR), shown(even)),
        most_part(f"cutting the first out of the keys of the second costs over {ESSENTIAL} nats",
                  (cuts["low"] > ESSENTIAL).to_list()),
    )  # fmt: skip
    rows = [{"label": name, **one._asdict()} for name, one in found.items()]
    rows.append({"label": "evenness of the matches", **even._asdict()})
    return Measured(
        parts,
        found["matches"],
        "match score",
        seeds_in(scores),
        scale_of(scores),
        pd.DataFrame(rows),
        {"criterion": CLEAR},
        "checkpoints in 2-Gen, one a run",
    )


def recognition(store: EvidenceStore) -> Measured:
    """Does the second attention in 2-Mem pool evenly and write which chain it is?"""
    shares = in_phase(store, "trace-task-vector-variance_shares", "2-Mem")
    own = pd.DataFrame(shares[shares["component"] == "recognition"])
    even = _best(in_phase(store, "trace-induction-induction", "2-Mem"), "evenness", 1)
    found, evenness = _by_rank(own, "share"), _by_rank(even, "evenness")
    other = _in_two_gen(store)
    parts = (
        Part("most of what tells chains apart does not depend on the current state (above 0.5)",
             above(found, 0.5), shown(found)),
        Part("attention close to even (above 0.9 of its greatest entropy)",
             above(evenness, 0.9), shown(evenness)),
        Part("less so in 2-Gen (below 0.5)",
             None if other is None else below(other, 0.5),
             "not traced" if other is None else shown(other)),
    )  # fmt: skip
    rows = [{"label": "2-Mem", **found._asdict()}, {"label": "evenness", **evenness._asdict()}]
    if other is not None:
        rows.append({"label": "2-Gen", **other._asdict()})
    return Measured(
        parts,
        found,
        "share",
        seeds_in(own),
        scale_of(own),
        pd.DataFrame(rows),
        {"criterion": 0.5},
    )


def _in_two_gen(store: EvidenceStore) -> Estimate | None:
    try:
        shares = in_phase(store, "trace-task-vector-variance_shares", "2-Gen")
    except NoEvidence:
        return None
    return _by_rank(pd.DataFrame(shares[shares["component"] == "recognition"]), "share")


def _moved(table: pd.DataFrame, insert: str, reader: str) -> pd.DataFrame:
    own = table[(table["insert"] == insert) & (table["reader"] == reader)]
    if own.empty:
        raise NoEvidence(f"no patch of {insert} vectors into {reader}")
    return pd.DataFrame(own)


def task_vector(store: EvidenceStore) -> Measured:
    """Does another chain's vector move the answer to that chain?"""
    table = in_phase(store, "trace-task-vector-task_vector_patch", "2-Mem")
    alone, whole = _moved(table, "target", "M1"), _moved(table, "target", "all")
    found, everyone = _by_rank(alone, "fraction"), _by_rank(whole, "fraction")
    random = _by_rank(_moved(table, "random", "all"), "fraction")
    parts = (
        Part(f"into the second MLP alone, at least {CLEAR:.0%} of the gap", above(found, CLEAR),
             shown(found)),
        Part(f"into all its readers, at least {CLEAR:.0%}", above(everyone, CLEAR),
             shown(everyone)),
        Part("a random vector of the same size moves less than 20 %", below(random, 0.2),
             shown(random)),
    )  # fmt: skip
    both = pd.concat([alone, whole])
    note = "the paper's gap is into the MLP; a model may also read the vector into its logits"
    other = _fails_in_two_gen(store)
    if not math.isnan(other.value):
        note += f"; in 2-Gen the same patch moves {shown(other)}"
    return Measured(
        parts,
        found,
        "of the gap",
        seeds_in(alone),
        scale_of(table),
        per_setting(both, "fraction", ("insert", "reader")),
        {"criterion": CLEAR, "all of it": 1.0},
        note,
    )


def _fails_in_two_gen(store: EvidenceStore) -> Estimate:
    try:
        table = in_phase(store, "trace-task-vector-task_vector_patch", "2-Gen")
        return _by_rank(_moved(table, "target", "all"), "fraction")
    except NoEvidence:
        return Estimate(math.nan)


CLAIMS = (
    Claim(
        "induction-head",
        "markov",
        "2-Gen is a statistical induction head: look back, match, read out evenly.",
        "no number",
        "a summary of the paper; scores and thresholds are ours",
        "previous-token and match scores and evenness above 0.8; cutting the first out of the keys "
        "of the second costs over 0.02 nats in most runs",
        (CHAINS,),
        induction,
    ),
    Claim(
        "task-recognition-head",
        "markov",
        "In 2-Mem the second attention is a task-recognition head: it pools evenly and writes "
        "which chain it is.",
        "no number",
        "summaries of the paper; the measure is ours",
        "state-independent share above 0.5, evenness above 0.9, and a share below 0.5 in 2-Gen",
        (CHAINS,),
        recognition,
    ),
    Claim(
        "task-vector",
        "markov",
        "Another chain's task vector moves the answer to that chain.",
        "patching supports it",
        "a careful reader's notes; the 80 % are ours",
        "at least 80 % of the gap into the second MLP alone and into all readers; a random vector "
        "less than 20 %",
        (CHAINS,),
        task_vector,
    ),
)
