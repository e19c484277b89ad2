"""Does the second attention write a vector that names the chain, and does the model act on it?"""

from typing import Any

import torch
from torch import Tensor

from circuits.errors import InputError
from circuits.figures.curves import PROBE, curve_figure
from circuits.figures.mechanisms import bar_figure
from circuits.node_output import node_output
from circuits.task_vector import TaskVectors, task_vectors
from circuits.task_vector_patch import TaskVectorPatch, patch_task_vector
from circuits.task_vector_probe import probe_task_vectors
from circuits.task_vector_rank import dimension
from circuits.variance_shares import variance_shares
from mechinterp.findings.finding import Finding
from mechinterp.memorising_predictors import chain_log_posterior
from mechinterp.tasks import MarkovChains
from mechinterp.tasks.chain_sequences import ChainSequences

PER_CHAIN, MOST_CHAINS = 16, 16
"""Sequences of a chain in each of the two halves (vectors, tests), and chains at most."""


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
    node, reader = "A1", "M1"
    vectors = task_vectors(model, made.tokens[:, :-1], made.chain, node, late)
    patch = _patched(model, vectors, tested, reader)
    probe = _probed(model, vectors, tested)
    size = dimension(vectors)
    shares = variance_shares(
        node_output(model, tested.tokens[:, :-1], node),
        tested.chain,
        tested.tokens[:, :-1],
        late,
    )
    tables = {
        "task_vector_patch": patch.table,
        "task_vector_probe": probe,
        "task_vector_dimension": size.table,
        "variance_shares": shares,
    }
    figures = {
        "Task vectors exchanged": bar_figure(
            patch.table,
            ["insert", "reader"],
            "fraction",
            title="How far the answer moves to the chain whose vector is inserted",
            unit="fraction",
            marks=(0.0, 1.0),
        ),
        "Task vectors read": curve_figure(
            probe, "position", PROBE, title="Chain named by the nearest vector", unit="share"
        ),
    }
    return Finding("task-vector", _lines(patch, probe, size, shares), tables, figures)


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


def _patched(
    model: Any, vectors: TaskVectors, tested: ChainSequences, reader: str
) -> TaskVectorPatch:
    n_chains = len(vectors.labels)

    def answers(chain: Tensor, tokens: Tensor) -> Tensor:
        return tested.chains[chain[:, None], tokens].float()

    return patch_task_vector(
        model,
        vectors,
        tested.tokens[:, :-1],
        tested.chain,
        (tested.chain + 1) % n_chains,
        answers,
        reader,
    )


def _probed(model: Any, vectors: TaskVectors, tested: ChainSequences) -> Any:
    tokens = tested.tokens[:, :-1]
    chains = tested.chains[torch.tensor(vectors.labels)]
    posterior = chain_log_posterior(tokens, chains)
    return probe_task_vectors(model, vectors, tokens, tested.chain, posterior=posterior)


def _lines(patch: TaskVectorPatch, probe: Any, size: Any, shares: Any) -> tuple[str, ...]:
    rows = {(row["insert"], row["reader"]): row for row in patch.table.to_dict("records")}
    chief = rows.pop(("target", "M1"))
    controls = ", ".join(
        f"{insert if reader == 'M1' else f'{insert} into {reader}'} {row['fraction']:.2f}"
        for (insert, reader), row in rows.items()
        if insert != "none"
    )
    last = probe.iloc[-1]
    own = shares.set_index("component").loc["recognition"]
    return (
        "Task vector (A1 into M1): another chain's vector moves the answer "
        f"{chief['fraction']:.2f} of the way to that chain ({chief['low']:.2f} to "
        f"{chief['high']:.2f}); controls: {controls}",
        f"  nearest vector names the chain in {last['accuracy']:.0%} of held-out sequences at "
        f"their end ({last['low']:.0%} to {last['high']:.0%}; exact posterior {last['best']:.0%}); "
        f"participation ratio {size.participation_ratio:.1f}",
        "  share of the difference between chains that does not depend on the current state: "
        f"{own['share']:.2f} ({own['low']:.2f} to {own['high']:.2f}; high for a task-recognition "
        "head, low for an induction head)",
    )
