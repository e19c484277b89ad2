"""Traced checkpoints of the Markov-chain study: which phase each was in, and its tables."""

import pandas as pd

from analyses.ledger.chain_runs import CHAINS
from analyses.ledger.store import EvidenceStore, NoEvidence

ESSENTIAL = 0.02
"""Effect (nats) above which, with the whole interval, an edge is essential; that of
`mechinterp.findings.phase`."""


def in_phase(store: EvidenceStore, name: str, phase: str) -> pd.DataFrame:
    """Gives the rows of a table of traces at the last traced checkpoint of each run in a phase.

    Raises:
        NoEvidence: no such table, or no run was traced in that phase.
    """
    table = store.joined(CHAINS, name)
    phases = store.table(CHAINS, "phases-phases").set_index(["run", "step"])["phase"]
    keys = pd.MultiIndex.from_frame(table[["run", "step"]])
    here = table[(phases.reindex(keys) == phase).to_numpy()]
    if here.empty:
        raise NoEvidence(f"no checkpoint in {phase} has been traced ({name})")
    last = here.groupby("run")["step"].transform("max")
    return pd.DataFrame(here[here["step"] == last])


def essential(edges: pd.DataFrame, edge: str) -> list[bool] | None:
    """Says for each run whether an edge is essential; None if it was not measured in any."""
    own = edges[edges["edge"] == edge]
    return None if own.empty else (own["low"] > ESSENTIAL).to_list()


def any_essential(edges: pd.DataFrame, names: tuple[str, ...]) -> list[bool] | None:
    """Says for each run whether at least one of several edges is essential."""
    own = edges[edges["edge"].isin(names)]
    if own.empty:
        return None
    return own.assign(needed=own["low"] > ESSENTIAL).groupby("run")["needed"].any().to_list()
