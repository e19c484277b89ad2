"""What one head does with the selector: where it looks, and what its values carry.

A value patch changes the output of one head, so the clean pass is run once and the patch starts
again behind that head's layer.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError
from circuits.metrics import MetricCallable
from circuits.restart import Recording, Restart

SIGNALS = (
    "ablation",
    "attention_decide",
    "attention_answer",
    "knockout_answer",
    "knockout_after",
    "value_patch",
    "ov_copying",
)


@dataclass(frozen=True)
class SelectorPlaces:
    """Token positions of a task with a selector.

    Attributes:
        selector: positions of the selector's tokens.
        decide: the positions that decide the answer (that predict its first token).
        answer: every query position that predicts a token of the answer, those of `decide` too.
        n_used: positions that the model reads.
    """

    selector: tuple[int, ...]
    decide: tuple[int, ...]
    answer: tuple[int, ...]
    n_used: int

    @property
    def after(self) -> tuple[int, ...]:
        """Every position after the selector."""
        return tuple(range(max(self.selector) + 1, self.n_used))


@dataclass(frozen=True)
class SelectorRuns:
    """A clean pass, the values of a pass with other selectors, and how to go on from a layer.

    Attributes:
        places: named positions.
        clean: recorded `resid_pre`, `pattern` and `z`.
        values: for each layer, its heads' values, `"batch pos head_index d_head"`, grouped ones
            repeated for every query head.
        swapped_values: the same when every example has the other selector.
        differing: chance that two different examples have different selectors.
        restart: from a layer's attention to the logits at the scored positions.
        metric: of those logits.
        base: the metric of the clean pass.
    """

    places: SelectorPlaces
    clean: Recording
    values: tuple[Tensor, ...]
    swapped_values: tuple[Tensor, ...]
    differing: float
    restart: Restart
    metric: MetricCallable
    base: Float[Tensor, " batch"]


def head_values(
    recording: Recording, n_heads: int
) -> tuple[Float[Tensor, "batch pos head_index d_head"], ...]:
    """Gives every layer's recorded value vectors, grouped ones repeated for each query head."""
    return tuple(v.repeat_interleave(n_heads // v.shape[2], dim=2) for v in recording["v"])


def selector_signals(runs: SelectorRuns, layer: int, head: int) -> dict[str, Tensor]:
    """Computes the signals of one head that are new here: attention, value patch, OV copying.

    Args:
        runs: the passes.
        layer: of the head.
        head: its index.

    Returns:
        One value an example for `attention_*` and `value_patch`; for `ov_copying` linearised
        values, whose mean is the ratio of means and whose spread is that ratio's.
    """
    places = runs.places
    pattern = runs.clean["pattern"][layer][:, head]
    z = runs.clean["z"][layer][:, :, head]
    to_selector = pattern[:, :, list(places.selector)]
    swap = (runs.swapped_values[layer] - runs.values[layer])[:, list(places.selector), head]
    moved = to_selector @ swap
    attention = to_selector.sum(-1)
    signals = {
        "attention_decide": attention[:, list(places.decide)].mean(-1),
        "attention_answer": attention[:, list(places.answer)].mean(-1),
    }
    signals["value_patch"] = _effect(runs, layer, head, z + moved)
    decide, weight = list(places.decide), runs.restart.model.blocks[layer].attn.W_O[head].detach()
    written = z @ weight
    signals["ov_copying"] = _copied_share(
        moved[:, decide] @ weight, written[:, decide], runs.differing, float(written.abs().max())
    )
    return signals


def _effect(runs: SelectorRuns, layer: int, head: int, new_z: Tensor) -> Float[Tensor, " batch"]:
    z = runs.clean["z"][layer].clone()
    z[:, :, head] = new_z
    attn_out = runs.restart.attn_out(layer, z)
    logits = runs.restart.from_attn_out(layer, runs.clean["resid_pre"][layer], attn_out)
    return runs.metric(logits) - runs.base


def _copied_share(
    moved: Float[Tensor, "batch place d_model"],
    written: Float[Tensor, "batch place d_model"],
    differing: float,
    largest: float,
) -> Float[Tensor, " batch"]:
    """Share of the variance of what is written that the selector's values account for.

    Half the mean square of the change when the selector is drawn anew is the variance that it
    explains (Jansen, 1999). Ours is always another one, where a fresh draw would be another one
    with chance `differing`. The ratio of two means is linearised around itself. A head whose
    output hardly varies, beside the `largest` value that it writes anywhere, copies nothing.
    """
    n = written.shape[0]
    moved, written = moved.double(), written.double()
    explained = differing * moved.square().sum((-1, -2)) / 2
    spread = (written - written.mean(0)).square().sum((-1, -2)) * n / max(n - 1, 1)
    if float(spread.mean()) <= 1e-12 * largest**2:
        return torch.zeros_like(spread)
    ratio = explained.mean() / spread.mean()
    return ratio + (explained - ratio * spread) / spread.mean()


def chance_of_differing(selectors: Int[Tensor, "batch pos"]) -> float:
    """Chance that two different examples have different selectors; 1 for a single example."""
    n = selectors.shape[0]
    _, counts = torch.unique(selectors, dim=0, return_counts=True)
    return 1 - float((counts * (counts - 1)).sum()) / max(n * (n - 1), 1)


def check_places(
    clean: Int[Tensor, "batch pos"],
    corrupt: Int[Tensor, "corrupt_batch corrupt_pos"],
    places: SelectorPlaces,
) -> None:
    """Refuses positions or pairs with which the question makes no sense.

    Raises:
        InputError: queries before the selector, or a pair with the same selector twice.
    """
    early = [p for p in (*places.decide, *places.answer) if p <= max(places.selector)]
    if early:
        raise InputError(
            f"position {early[0]} of decide or answer does not come after the selector at "
            f"{list(places.selector)}: give the positions that predict the answer"
        )
    columns = list(places.selector)
    same = (clean[:, columns] == corrupt[:, columns]).all(-1)
    if bool(same.any()):
        raise InputError(
            f"corrupt has the selector of clean in {int(same.sum())} of {len(same)} examples: "
            "pair every example with another selector (a task without one has no selector head)"
        )
