"""Does the second attention write a vector that names the chain, and does the model act on it?"""

from typing import Any

import pandas as pd
import torch
from torch import Tensor

from circuits.errors import InputError
from circuits.figures.curves import PROBE, RANK, curve_figure
from circuits.figures.mechanisms import bar_figure
from circuits.node_outputs import node_output
from circuits.task_vector import TaskVectors, task_vectors
from circuits.task_vector_patch import patch_task_vector
from circuits.task_vector_probe import probe_task_vectors
from circuits.task_vector_rank import dimension, rank_curve
from circuits.variance_components import variance_shares
from mechinterp.findings.finding import Finding
from mechinterp.memorising_predictors import chain_log_posterior
from mechinterp.tasks import MarkovChains
from mechinterp.tasks.chain_sequences import ChainSequences

PER_CHAIN, MOST_CHAINS = 16, 16
"""Sequences of a chain in each of the two halves (vectors, tests), and chains at most."""

NODE, READERS = "A1", ("M1", "all")
"""What writes the vector, and who is given another one: the second MLP alone, as paper 2 (arXiv
2604.12151) has it, and everyone who reads the node. A model may also read it into the logits
directly, and then the MLP alone cannot move the whole answer."""

RANKS, RANKED_ON = (0, 1, 2, 3, 4, 6, 8, 12), 64
"""Ranks of the projection that are tried, and sequences that they are tried on."""

CRITERION = 0.8
"""Least share of the way to the other chain that counts as a task vector; ours."""


def task_vector_finding(model: Any, task: MarkovChains) -> Finding:
    """Extracts a vector for each chain, probes it, patches it, and asks what else it depends on.

    Half of the sequences make the vectors, the other half test them. The chains are the training
    chains, or held-out ones where every training sequence has a fresh chain.

    Raises:
        InputError: the model has no second attention layer with an MLP after it, or there is only
            one chain.
    """
    if model.cfg.n_layers < 2 or model.cfg.attn_only:
        raise InputError("the task-vector test needs two layers with MLPs: A1 writes it, M1 reads")
    made, tested = _halves(task)
    late = task.positions["late"]
    vectors = task_vectors(model, made.tokens[:, :-1], made.chain, NODE, late)
    patch = _patched(model, vectors, tested)
    probe = _probed(model, vectors, tested)
    size = dimension(vectors)
    shares = variance_shares(
        node_output(model, tested.tokens[:, :-1], NODE),
        tested.chain,
        tested.tokens[:, :-1],
        late,
    )
    ranks = _ranked(model, vectors, tested, len(size.axes))
    tables = {
        "task_vector_patch": patch,
        "task_vector_probe": probe,
        "task_vector_dimension": size.table,
        "task_vector_rank": ranks,
        "variance_shares": shares,
    }
    lines = _lines(patch, probe, size, ranks, shares)
    return Finding("task-vector", lines, tables, _figures(tables))


def _figures(tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    return {
        "Task vectors exchanged": bar_figure(
            tables["task_vector_patch"],
            ["insert", "reader"],
            "fraction",
            title="How far the answer moves to the chain whose vector is inserted",
            unit="fraction",
            marks=(0.0, CRITERION, 1.0),
        ),
        "Task vectors read": curve_figure(
            tables["task_vector_probe"],
            "position",
            PROBE,
            title="Chain named by the nearest vector",
            unit="share",
        ),
        "Task vectors projected": curve_figure(
            tables["task_vector_rank"],
            "rank",
            RANK,
            title="What is lost when only some dimensions are read",
            unit="KL, nats",
        ),
        "Variance of what is written": bar_figure(
            tables["variance_shares"],
            "component",
            "share",
            title="Where the variance of the vector comes from",
            unit="share",
        ),
    }


def _halves(task: MarkovChains) -> tuple[ChainSequences, ChainSequences]:
    """Two sets of sequences of the same chains, which take turns."""
    frozen = isinstance(task.config.k, int)
    all_chains = task.config.k if isinstance(task.config.k, int) else task.config.held_out
    n_chains = min(all_chains, MOST_CHAINS)
    if n_chains < 2:
        raise InputError("the task-vector test needs at least two chains; this run has one")
    n = 2 * PER_CHAIN * all_chains
    drawn = task.evaluation_set(n) if frozen else task.evaluation_new_set(n)
    kept = (drawn.chain < n_chains).nonzero()[:, 0]
    first, second = kept[: PER_CHAIN * n_chains], kept[PER_CHAIN * n_chains :]
    return _part(drawn, first), _part(drawn, second)


def _part(drawn: ChainSequences, rows: Tensor) -> ChainSequences:
    return ChainSequences(drawn.tokens[rows], drawn.chain[rows], drawn.chains)


def _patched(model: Any, vectors: TaskVectors, tested: ChainSequences) -> pd.DataFrame:
    """The rows of `patch_task_vector` for each of `READERS`; what they share is kept once."""
    n_chains = len(vectors.labels)

    def answers(chain: Tensor, tokens: Tensor) -> Tensor:
        return tested.chains[chain[:, None], tokens].float()

    found = [
        patch_task_vector(
            model,
            vectors,
            tested.tokens[:, :-1],
            tested.chain,
            (tested.chain + 1) % n_chains,
            answers,
            reader,
        ).table
        for reader in READERS
    ]
    table = pd.concat(found).drop_duplicates(["insert", "reader"])
    return table[table["insert"] != "none"].reset_index(drop=True)


def _probed(model: Any, vectors: TaskVectors, tested: ChainSequences) -> Any:
    tokens = tested.tokens[:, :-1]
    chains = tested.chains[torch.tensor(vectors.labels)]
    posterior = chain_log_posterior(tokens, chains)
    return probe_task_vectors(model, vectors, tokens, tested.chain, posterior=posterior)


def _ranked(model: Any, vectors: TaskVectors, tested: ChainSequences, most: int) -> pd.DataFrame:
    """KL of the answer from that of a model whose readers see only some dimensions."""
    ranks = [rank for rank in RANKS if rank <= most]
    return rank_curve(model, vectors, tested.tokens[:RANKED_ON, :-1], "all", ranks=ranks)


def _lines(
    patch: pd.DataFrame, probe: Any, size: Any, ranks: pd.DataFrame, shares: Any
) -> tuple[str, ...]:
    rows = {(row["insert"], row["reader"]): row for row in patch.to_dict("records")}
    whole, paper, direct = (rows["target", reader] for reader in ("all", "M1", "logits"))
    controls = ", ".join(
        f"{name} {rows[insert, 'all']['fraction']:.2f}"
        for insert, name in (("own", "own"), ("other", "shuffled pairs"), ("random", "random"))
        if (insert, "all") in rows
    )
    last = probe.iloc[-1]
    own = shares.set_index("component").loc["recognition"]
    return (
        f"Task vector ({NODE} into all its readers): another chain's vector moves the answer "
        f"{_fraction(whole)} of the way to that chain; {_verdict(whole)}",
        f"  into M1 alone, the paper's definition: {_fraction(paper)}, {_verdict(paper)}; into the "
        f"logits alone {direct['fraction']:.2f}; controls: {controls}",
        f"  nearest vector names the chain in {last['accuracy']:.0%} of held-out sequences at "
        f"their end ({last['low']:.0%} to {last['high']:.0%}; exact posterior {last['best']:.0%}); "
        f"participation ratio {size.participation_ratio:.1f}",
        "  KL (nats) of the answer when its readers see only so many dimensions: "
        + ", ".join(f"{row['rank']} {row['effect']:.3f}" for row in ranks.to_dict("records")),
        "  share of the difference between chains that does not depend on the current state: "
        f"{own['share']:.2f} ({own['low']:.2f} to {own['high']:.2f}; high for a task-recognition "
        "head, low for an induction head)",
    )


def _fraction(row: dict[Any, Any]) -> str:
    return f"{row['fraction']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def _verdict(row: dict[Any, Any]) -> str:
    """Whether the whole interval is on one side of the criterion."""
    if row["low"] >= CRITERION:
        return f"meets the criterion of {CRITERION:.2f}"
    if row["high"] < CRITERION:
        return f"below the criterion of {CRITERION:.2f}"
    return f"cannot be told from the criterion of {CRITERION:.2f}"
