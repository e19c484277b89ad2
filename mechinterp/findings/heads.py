"""What does the model lose without each head? Four losses, each measured under the ablation."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from circuits.branched_pass import branched_pass
from circuits.figures.mechanisms import score_figure
from circuits.heads import check_pair, head_names, parse_head
from circuits.intervals import mean_interval
from mechinterp.findings.finding import Finding
from mechinterp.tasks import Marginals, Pairs
from mechinterp.tasks.marginals_diagnostics import candidate_loss
from mechinterp.tasks.marginals_fibres import answer_slot, candidates, with_wrong_selector

MEASURES = ("first_token_ce", "target_ce", "candidate_loss", "z_gap")
"""Of each head, as `marginals_diagnostics.diagnostics` defines them of the whole model."""

RANKED_BY = "target_ce"
"""The measure whose rise orders the heads: the one that training minimises."""

EXAMPLES = 32
"""Sequences behind the four measures; each is scored with all of its K candidates."""


@dataclass(frozen=True)
class HeadLosses:
    """The four measures of the whole model and without each head.

    Attributes:
        table: one row a head, the largest rise of `RANKED_BY` first, after the row `none` of the
            whole model: `head`, and for each measure its value under the ablation with `_low`,
            `_high`, and its `_rise` with `_rise_low`, `_rise_high` (nats; paired over examples).
        per_example: the values under the ablation, in the model's order of heads, the whole model
            first.
    """

    table: pd.DataFrame
    per_example: dict[str, Float[Tensor, "head batch"]]


def heads_finding(model: Any, task: Marginals, pairs: Pairs, ablation: str = "zero") -> Finding:
    """Ablates every head and measures first-token, target and candidate loss and the z-gap anew.

    The z-gap of the whole model says nothing about the model without a head, so each of the four
    is computed from logits of the ablated model.
    """
    few = Pairs(pairs.clean[:EXAMPLES], pairs.corrupt[:EXAMPLES])
    table = head_losses(model, task, few, ablation).table
    lines = [
        f"Heads under {ablation} ablation on {len(few.clean)} examples (nats), by the rise of "
        f"{RANKED_BY}",
        "  head  " + "  ".join(f"{name:>14}" for name in MEASURES),
    ]
    lines += [
        f"  {row['head']:<4}  " + "  ".join(f"{row[name]:14.3f}" for name in MEASURES)
        for row in table.to_dict("records")
    ]
    shown = table[table["head"] != "none"].rename(columns=lambda name: name.replace("_rise", " +"))
    shown = shown.rename(columns=lambda name: name.replace(" +_", " +_"))
    figure = score_figure(
        pd.DataFrame(shown), [f"{name} +" for name in MEASURES], title="Rise under head ablation"
    )
    return Finding("heads", tuple(lines), {"heads": table}, {"Head ablation": figure})


def head_losses(model: Any, task: Marginals, pairs: Pairs, ablation: str = "zero") -> HeadLosses:
    """How do four measures of the task change when a head is taken away?

    Means ("mean") are over the clean sequences; "patch" takes a head's output from the corrupt
    partner, in all of an example's rows. Costs about 3 plain forward rows an example, a head.

    Args:
        model: a HookedTransformer.
        task: with a selector that decides between candidates.
        pairs: sequences of the task, and their partners.
        ablation: as in `head_effects`.

    Raises:
        InputError: a task without candidates or selector; an unknown ablation.
    """
    heads = [parse_head(model, name) for name in head_names(model)]
    device, decide = pairs.clean.device, task.scored[0] + 1
    tokens = pairs.clean.cpu()  # The task's table is there.
    own = answer_slot(task, tokens)
    shown = {
        "own": (tokens, candidates(task, tokens)[:, :, decide:]),
        "wrong": (with_wrong_selector(task, tokens), tokens[:, None, decide : decide + 1]),
    }
    reference = pairs.clean[:, :-1] if ablation in ("mean", "mean-all", "resample") else None
    corrupt = None
    if ablation == "patch":
        corrupt = check_pair(pairs.clean, pairs.corrupt, "ablation='patch'")[:, :-1]
    log_probs: dict[str, Tensor] = {}
    for name, (rows, answers) in shown.items():
        stems, branches = rows[:, :decide].to(device), answers.to(device)
        run = branched_pass(model, stems, branches, ablation, reference, corrupt)
        log_probs[name] = torch.cat([run.clean_log_probs()[None], run.log_probs(heads)])
    values = _measures(log_probs["own"], log_probs["wrong"][:, :, 0, 0], own)
    return HeadLosses(_table(["none", *head_names(model)], values), values)


def _measures(
    own: Float[Tensor, "head batch branch scored"],
    wrong: Float[Tensor, "head batch"],
    slot: Tensor,
) -> dict[str, Tensor]:
    """The four measures, an example, from log-probabilities of all candidates."""
    answer = own[:, torch.arange(own.shape[1]), slot]
    sums = own.sum(-1)
    return {
        "first_token_ce": -answer[..., 0],
        "target_ce": -answer.mean(-1),
        "candidate_loss": torch.stack([candidate_loss(one, slot) for one in sums]),
        "z_gap": answer[..., 0] - wrong,
    }


def _table(names: list[str], values: dict[str, Tensor]) -> pd.DataFrame:
    columns: dict[str, Any] = {"head": names}
    for name, found in values.items():
        for suffix, each in (("", found), ("_rise", found - found[:1])):
            for end, bound in zip(("", "_low", "_high"), mean_interval(each), strict=True):
                columns[f"{name}{suffix}{end}"] = bound.tolist()
    table = pd.DataFrame(columns)
    heads = table.iloc[1:].sort_values(f"{RANKED_BY}_rise", ascending=False, kind="stable")
    return pd.concat([table.iloc[:1], heads], ignore_index=True)
