"""The linear network: what is the least loss that it can reach on the marginals task?

A network without nonlinearities adds up what B and z say, whatever its depth: the logit of a first
character is u[B, character] + v[z, character]. That is a convex problem, so its optimum is a bound
on every such network and on every length of training.
"""

import math
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.answer import Answer
from analyses.catalogue import LinearNet
from analyses.checkpoints import versions
from analyses.rows import numbers, records
from circuits.errors import InputError
from circuits.figures.theme import LIGHT, Theme, themed
from mechinterp.config import MarginalsConfig
from mechinterp.tasks.marginals import Marginals


def answer(request: LinearNet) -> Answer:
    """Finds the least candidate loss of an additive model, for each mapping.

    Raises:
        InputError: K below 2, no seeds or a seed twice, or a size out of range.
    """
    if request.k < 2:
        raise InputError(f"k is {request.k}; candidates need at least 2")
    if not request.seeds or len(set(request.seeds)) < len(request.seeds):
        raise InputError(f"seeds is {request.seeds}; give at least one, and each once")
    rows = []
    for seed in request.seeds:
        task = Marginals(MarginalsConfig(request.k, request.n_b, mapping_seed=seed))
        found = least_loss(task.table.a[:, :, 0], request.steps)
        row = {"k": request.k, "n_b": request.n_b, "seed": seed, "steps": request.steps}
        rows.append({**row, "candidate_loss": found, "ln_k": math.log(request.k)})
    table = pd.DataFrame(rows)
    options: dict[str, Any] = {"k": request.k, "n_b": request.n_b, "steps": request.steps}
    return Answer(
        summary=tuple(_line(row) for row in records(table)),
        tables={"models": table},
        figures={"Least loss": loss_figure(table)},
        provenance={"options": options | {"seeds": list(request.seeds)}, "versions": versions()},
    )


def least_loss(first: Int[Tensor, "n_b k"], steps: int = 300) -> float:
    """How low can the candidate loss of an additive model be?

    Candidates are told apart by their first characters, and the loss is minimised itself, which no
    training on all characters does: every linear network does worse.

    Args:
        first: first character of the answer to each (B, z), different within a B.
        steps: iterations of L-BFGS.

    Returns:
        The mean over all (B, z) of -ln p(answer | candidates of B), in nats.
    """
    n_b, k = first.shape
    names, index = first.unique(return_inverse=True)
    # Only the candidates of a B are ever compared, so u needs no other character.
    from_b = torch.zeros(n_b, k, dtype=torch.float64, requires_grad=True)
    from_z = torch.zeros(k, len(names), dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([from_b, from_z], max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> Float[Tensor, ""]:
        logits = from_b[:, None, :] + from_z[:, index].transpose(0, 1)
        own = logits.log_softmax(-1).diagonal(dim1=1, dim2=2)
        return -own.mean()

    def closure() -> Float[Tensor, ""]:
        solver.zero_grad()
        value = loss()
        value.backward()
        return value

    solver.step(closure)
    with torch.no_grad():
        return float(loss())


def _line(row: dict[str, Any]) -> str:
    return (
        f"K {row['k']}, n_b {row['n_b']}, mapping {row['seed']}: least candidate loss "
        f"{row['candidate_loss']:.4f} nats, {row['candidate_loss'] / row['ln_k']:.3f} ln K"
    )


def loss_figure(table: pd.DataFrame, theme: Theme = LIGHT) -> go.Figure:
    """Draws the least loss of every mapping, as a share of ln K."""
    share = numbers(table, "candidate_loss") / numbers(table, "ln_k")
    figure = go.Figure(go.Bar(x=[f"mapping {seed}" for seed in table["seed"]], y=share.tolist()))
    figure.add_hline(y=1.0, line={"color": theme.ink, "dash": "dot", "width": 1})
    title = "Least candidate loss of a linear network"
    return themed(figure, theme, title, yaxis={"title": {"text": "ln K"}}, height=380)
