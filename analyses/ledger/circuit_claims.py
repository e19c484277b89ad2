"""Claims about the circuit of each phase, found by cutting edges."""

import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd

from analyses.formation.overlaps import overlap
from analyses.ledger.chain_runs import CHAINS, NAMES
from analyses.ledger.claim import MIN_SEEDS, Claim, Estimate, Measured, Part
from analyses.ledger.criteria import most
from analyses.ledger.seeds import over_seeds, per_setting, scale_of, seeds_in
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.traced import ESSENTIAL, any_essential, essential, in_phase

POOLING = ("embed->A0.v", "embed->A1.v", "embed->A0", "embed->A1")
READ_OUT = ("A0->M0", "A0->M1", "A1->M1")
CURRENT = ("embed->M0", "embed->M1")
MATCHING = "A0->A1.k"

TOP = 6
"""Edges in the set that is compared between seeds."""


def phase_circuit(
    phase: str, table: str, expected: tuple[tuple[str, tuple[str, ...], bool], ...]
) -> Callable[[EvidenceStore], Measured]:
    """Makes the measurement of one phase's circuit.

    Args:
        phase: its name.
        table: of traces that holds the edges.
        expected: statement, edges, and whether at least one of them has to be essential (True) or
            none may be (False).
    """

    def measure(store: EvidenceStore) -> Measured:
        edges = in_phase(store, table, phase)
        parts = []
        for statement, names, wanted in expected:
            found = essential(edges, names[0]) if len(names) == 1 else any_essential(edges, names)
            flags = None if found is None else [flag == wanted for flag in found]
            parts.append(
                Part(statement, None if flags is None else most(flags),
                     "not measured" if flags is None else f"{sum(flags)} of {len(flags)} runs")
            )  # fmt: skip
        named = [name for _, names, _ in expected for name in names]
        shown_edges = pd.DataFrame(edges[edges["edge"].isin(named)])
        means = per_setting(shown_edges, "effect", ("edge",)) if len(shown_edges) else shown_edges
        first = shown_edges[shown_edges["edge"] == named[0]]
        return Measured(
            tuple(parts),
            over_seeds(first.groupby("rank")["effect"].mean()),
            f"nats, {named[0]}",
            seeds_in(edges),
            scale_of(edges),
            means,
            {"essential": ESSENTIAL},
            f"checkpoints in {phase}, one a run",
        )

    return measure


def consistency(store: EvidenceStore) -> Measured:
    """Are the circuits of a phase the same across seeds, more than random sets of edges?"""
    store.table(CHAINS, "trace-edges")  # without any traces there is nothing to say of a phase
    parts, rows, values, seeds = [], [], [], []
    strongest: dict[str, list[set[str]]] = {}
    most_seeds = 0
    for phase in NAMES:
        try:
            edges = in_phase(store, "trace-edges", phase)
        except NoEvidence as lack:
            parts.append(Part(f"{phase}: above chance", None, str(lack)))
            continue
        edges = _at_one_k(edges)
        most_seeds = max(most_seeds, seeds_in(edges))
        wide = edges.pivot_table(index="edge", columns="run", values="effect").dropna()
        if seeds_in(edges) < MIN_SEEDS or len(wide) <= TOP:
            lack = f"{seeds_in(edges)} seeds at one K, or too few edges"
            parts.append(Part(f"{phase}: above chance", None, lack))
            continue
        effects = wide.to_numpy(float)
        strata = [str(edge).partition("->")[2] for edge in wide.index]
        pairs = overlap(range(wide.shape[1]), effects, effects > ESSENTIAL, strata, TOP)  # pyright: ignore
        strongest[phase] = [set(wide[run].nlargest(TOP).index) for run in wide]
        found, null = (float(pairs[n].mean()) for n in ("jaccard", "null_high"))
        parts.append(
            Part(f"{phase}: Jaccard index of the {TOP} strongest edges above that of random sets",
                 most((pairs["jaccard"] > pairs["null_high"]).to_list()),
                 f"{found:.2f}, random up to {null:.2f}, {len(pairs)} pairs")
        )  # fmt: skip
        rows += [
            {"label": phase, "value": found},
            {"label": f"{phase}, random", "value": null},
        ]
        values.append(found)
        seeds.append(seeds_in(edges))
    if not rows:
        raise NoEvidence(f"{most_seeds} seeds; a verdict needs at least {MIN_SEEDS}")
    parts += _apart(strongest)
    return Measured(
        tuple(parts),
        Estimate(float(np.mean(values))),
        "Jaccard index",
        min(seeds),
        scale_of(store.joined(CHAINS, "trace-edges")),
        pd.DataFrame(rows),
        note="runs of the same phase and K; random sets of as many edges",
    )


def _apart(strongest: dict[str, list[set[str]]]) -> list[Part]:
    """Whether the circuits of a phase agree more with each other than with those of other phases:
    random sets alone are beaten by any two models that train on this task."""
    parts = []
    for phase, own in strongest.items():
        within = _mean_index(list(itertools.combinations(own, 2)))
        others = {
            other: _mean_index(list(itertools.product(own, sets)))
            for other, sets in strongest.items()
            if other != phase
        }
        if others:
            near = max(others, key=lambda name: others[name])
            parts.append(
                Part(f"{phase}: seeds agree more with each other than with any other phase",
                     within > others[near], f"{within:.2f}, with {near} {others[near]:.2f}")
            )  # fmt: skip
    return parts


def _mean_index(pairs: list[tuple[set[str], set[str]]]) -> float:
    return float(np.mean([len(one & other) / len(one | other) for one, other in pairs]))


def _at_one_k(edges: pd.DataFrame) -> pd.DataFrame:
    """The runs of one K, that with most seeds in the phase; the smallest of several such."""
    seeds = edges.groupby("k")["rank"].nunique()
    return pd.DataFrame(edges[edges["k"] == seeds.idxmax()])


_SOURCE = "a summary of the paper; the edges are our reading of it"

CLAIMS = (
    Claim(
        "circuit-one-gen",
        "markov",
        "1-Gen pools the states evenly and needs no previous token.",
        "sparse subcircuit",
        _SOURCE,
        "pooling (embed->A0.v or A1.v) essential and A0->A1.k not, each in most runs; essential: "
        "effect above 0.02 nats with its interval",
        (CHAINS,),
        phase_circuit(
            "1-Gen",
            "trace-edges",
            (
                (
                    "attention pools the states (embed->A0.v or embed->A1.v essential)",
                    POOLING,
                    True,
                ),
                ("no matching (A0->A1.k dispensable)", (MATCHING,), False),
            ),
        ),
    ),
    Claim(
        "circuit-one-mem",
        "markov",
        "1-Mem pools the states, recognises the chain in an MLP, and reads out its row.",
        "sparse subcircuit",
        _SOURCE,
        "pooling, an MLP that reads it, and an MLP that reads the current state essential; "
        "A0->A1.k not, each in most runs",
        (CHAINS,),
        phase_circuit(
            "1-Mem",
            "trace-edges",
            (
                (
                    "attention pools the states (embed->A0.v or embed->A1.v essential)",
                    POOLING,
                    True,
                ),
                ("an MLP reads what is pooled (A0->M0, A0->M1 or A1->M1)", READ_OUT, True),
                ("an MLP reads the current state (embed->M0 or embed->M1)", CURRENT, True),
                ("no matching (A0->A1.k dispensable)", (MATCHING,), False),
            ),
        ),
    ),
    Claim(
        "circuit-two-gen",
        "markov",
        "2-Gen needs the previous token in the keys of the second attention.",
        "A0 into the keys of A1",
        _SOURCE,
        "A0->A1.k essential and M0->A1.v not (KL above 0.02 nats, mean ablation), in most runs",
        (CHAINS,),
        phase_circuit(
            "2-Gen",
            "trace-phase-expected_edges",
            (
                ("A0->A1.k essential", (MATCHING,), True),
                ("M0->A1.v dispensable", ("M0->A1.v",), False),
            ),
        ),
    ),
    Claim(
        "circuit-two-mem",
        "markov",
        "2-Mem encodes pairs in the first MLP, pools them, and decodes in the second MLP.",
        "M0 to A1 to M1",
        _SOURCE,
        "M0->A1.v and A1->M1 essential, A0->A1.k not (KL above 0.02 nats, mean ablation), in most "
        "runs",
        (CHAINS,),
        phase_circuit(
            "2-Mem",
            "trace-phase-expected_edges",
            (
                ("M0->A1.v essential", ("M0->A1.v",), True),
                ("A1->M1 essential", ("A1->M1",), True),
                ("A0->A1.k dispensable", (MATCHING,), False),
            ),
        ),
    ),
    Claim(
        "circuit-consistency",
        "markov",
        "A phase has a circuit of its own: seeds agree on its edges, other phases do not.",
        "no number",
        "implied by the paper; the measure and its null are ours",
        "Jaccard index of the 6 strongest edges above 95 % of random sets of as many, in most "
        "pairs of runs of each phase, and on average above that with every other phase",
        (CHAINS,),
        consistency,
    ),
)
