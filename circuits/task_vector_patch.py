"""Is the task vector what the model acts on? Insert another group's, and see the answer follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.checked_run import check_length, check_tokens, checked_streams
from circuits.errors import InputError, refuse_other_kinds, whole_number
from circuits.heads import parse_positions
from circuits.intervals import mean_interval
from circuits.model_weights import read_weights
from circuits.node_outputs import parse_node, parse_readers, patched_run
from circuits.provenance import provenance
from circuits.task_vector import TaskVectors
from circuits.undisturbed import undisturbed

Answers = Callable[[Tensor, Tensor], Tensor]
"""Groups `"batch"` and tokens `"batch pos"` to the probabilities `"batch pos d_vocab"` that a
sequence of that group would be continued with."""

FLOOR = 1e-6
"""Least probability of an answer, so that impossible tokens do not weigh infinitely."""


@dataclass(frozen=True)
class TaskVectorPatch:
    """What happens to the answer when task vectors are exchanged.

    Attributes:
        table: one row an insertion: `insert`, `reader`, `fraction` with `low` and `high`, `kl_own`
            and `kl_target` (nats).
        per_example: linearised values behind each fraction; their mean is the ratio of means.
        provenance: what decided the numbers.
    """

    table: pd.DataFrame
    per_example: Float[Tensor, "insert batch"]
    provenance: dict[str, Any]


def patch_task_vector(
    model: Any,
    vectors: TaskVectors,
    tokens: Int[Tensor, "batch pos"],
    groups: Int[Tensor, " labelled"],
    targets: Int[Tensor, " targeted"],
    answers: Answers,
    reader: str = "all",
    positions: Sequence[int] | None = None,
    seed: int = 0,
) -> TaskVectorPatch:
    """When a reader is given another group's vector, how far does the answer move to that group?

    The node's output, as the reader sees it, is replaced by a vector at the given positions, and
    the answer p' there is compared with the clean one p. With T_i, T_j the answers of the own and
    of the target group, the fraction is

        sum (T_j - T_i) (log p' - log p)  /  sum (T_j - T_i) (log T_j - log p),

    that is KL(T_i || .) - KL(T_j || .), as a share of what p' = T_j would reach: 0 unmoved, 1 all
    the way, above 1 past it. Means over positions and examples are taken before dividing.

    Rows: "none" (the clean run), "target" (the target group's vector), and controls: "own" (the own
    group's vector: should be near 0, for it only takes out what varies inside the group), "other"
    (a third group's: moves away from T_i, not towards T_j, so about one half where groups are
    alike; missing with two groups), "random" (the own group's vector plus a random step as long as
    the one to the target's), and "target" fed to the logits alone, unless that is the reader.

    Args:
        model: the model that the vectors are from, which is left as it was found.
        vectors: from `task_vectors`.
        tokens: sequences, rather not those of the vectors.
        groups: own group of each.
        targets: the group whose vector is inserted; another one than its own.
        answers: see `Answers`; for Markov chains the chain's row of the current state.
        reader: who is given the vector: `M1`, `logits`, a layer's heads `A1` or `A1.q`, one head
            `L1H0` or `L1H0.v`; or "all", everyone who reads the node.
        positions: where it is given and where the answer is compared; the vectors' own if None.
        seed: of the random directions and third groups; the global state is not touched.

    Returns:
        The fractions. Costs a forward pass a row and one more.

    Raises:
        InputError: a reader that does not read the node, a target equal to the own group, labels
            without a vector, or answers of the wrong shape.
    """
    refuse_other_kinds("vectors", vectors, TaskVectors, "what task_vectors found")
    if not callable(answers):
        raise InputError(
            f"answers is {type(answers).__name__}: give a function of groups and tokens"
        )
    whole_number("seed", seed)
    check_tokens(model, "tokens", tokens)
    check_length(model, tokens.shape[1])
    node = parse_node(model, vectors.node)
    readers = parse_readers(model, node, reader)
    at = list(
        parse_positions(vectors.positions if positions is None else positions, tokens.shape[1])
    )
    own = vectors.index_of(groups, "groups", tokens.shape[0])
    target = vectors.index_of(targets, "targets", tokens.shape[0])
    _refuse_own_target(own, target)
    log_own, log_target = (
        _log_answers(model, answers, x, tokens)[:, at] for x in (groups, targets)
    )
    inserts = _inserts(vectors, own, target, seed)
    plan = [(name, reader, readers, vector) for name, vector in inserts.items()]
    if reader != "logits":
        plan.append(("target", "logits", parse_readers(model, node, "logits"), inserts["target"]))
    with undisturbed(model):
        base, _ = checked_streams(model, read_weights(model), tokens, None)
        clean = base.logits[:, at].log_softmax(-1).double()
        rows, found = [("none", reader, *_row(log_own, log_target, clean, clean)[0])], []
        found.append(_row(log_own, log_target, clean, clean)[1])
        for name, to, read_by, vector in plan:
            logits = patched_run(base, node, read_by, vector[:, None], at).logits[:, at]
            row, values = _row(log_own, log_target, clean, logits.log_softmax(-1).double())
            rows.append((name, to, *row))
            found.append(values)
    columns = ["insert", "reader", "fraction", "low", "high", "kl_own", "kl_target"]
    return TaskVectorPatch(
        pd.DataFrame(rows, columns=columns),
        torch.stack(found),
        provenance(
            model,
            tokens,
            node=vectors.node,
            reader=reader,
            positions=at,
            seed=seed,
            vectors=vectors.vectors,
            groups=groups,
            targets=targets,
        ),
    )


def _inserts(
    vectors: TaskVectors, own: Tensor, target: Tensor, seed: int
) -> dict[str, Float[Tensor, "batch d_model"]]:
    generator = torch.Generator().manual_seed(seed)
    table, n = vectors.vectors, len(vectors.labels)
    inserts = {"target": table[target], "own": table[own]}
    if n > 2:
        draw = torch.randint(n - 2, own.shape, generator=generator).to(own.device)
        low, high = torch.minimum(own, target), torch.maximum(own, target)
        draw = draw + (draw >= low)
        inserts["other"] = table[draw + (draw >= high)]
    step = torch.randn(table[own].shape, generator=generator).to(table)
    length = (table[target] - table[own]).norm(dim=-1, keepdim=True)
    inserts["random"] = table[own] + step / step.norm(dim=-1, keepdim=True) * length
    return inserts


def _row(
    log_own: Tensor, log_target: Tensor, clean: Tensor, patched: Tensor
) -> tuple[tuple[float, float, float, float, float], Float[Tensor, " batch"]]:
    """Fraction with its interval, the two KLs, and the linearised values behind the fraction."""
    own, target = log_own.exp(), log_target.exp()
    moved = ((target - own) * (patched - clean)).sum(-1).mean(-1)
    gap = ((target - own) * (log_target - clean)).sum(-1).mean(-1)
    fraction = moved.mean() / gap.mean()
    values = fraction + (moved - fraction * gap) / gap.mean()
    mean, low, high = mean_interval(values)
    kl_own = (own * (log_own - patched)).sum(-1).mean()
    kl_target = (target * (log_target - patched)).sum(-1).mean()
    return (float(mean), float(low), float(high), float(kl_own), float(kl_target)), values


def _log_answers(model: Any, answers: Answers, groups: Tensor, tokens: Tensor) -> Tensor:
    given = answers(groups, tokens)
    wanted = (*tokens.shape, model.cfg.d_vocab)
    if not isinstance(given, Tensor) or tuple(given.shape) != wanted:
        shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        raise InputError(
            f"answers gave {shape}; it must give probabilities of shape {wanted}: "
            "batch, pos, d_vocab"
        )
    given = given.double()
    if not bool((given >= 0).all()) or bool(((given.sum(-1) - 1).abs() > 1e-3).any()):
        raise InputError("answers must give probabilities: none below 0, and a sum of 1")
    given = given.clamp_min(FLOOR)
    return (given / given.sum(-1, keepdim=True)).log()


def _refuse_own_target(own: Tensor, target: Tensor) -> None:
    same = own == target
    if bool(same.any()):
        raise InputError(
            f"targets equals groups for example {int(same.nonzero()[0])}: "
            "give every example another group's vector"
        )
