"""Where does the variance of a vector come from: the group, the current state, both, or noise?"""

from dataclasses import dataclass

import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import InputError, refuse_other_kinds
from circuits.heads import parse_positions
from circuits.intervals import mean_interval

COMPONENTS = ("group", "state", "interaction", "residual")


def variance_shares(
    values: Float[Tensor, "batch pos d"],
    groups: Int[Tensor, " labelled"],
    states: Int[Tensor, "states_batch states_pos"] | None = None,
    positions: "tuple[int, ...] | list[int] | range | None" = None,
) -> pd.DataFrame:
    """How much of a vector's variance is the group's, how much the current state's?

    A head that recognises the task writes the same vector whatever the current state is: `group`
    is large. An induction head writes the answer for the current state, so that groups differ from
    state to state: `interaction` is large and `group` small, although given the state the groups
    may well differ (`group_given_state`). `recognition`, the part of the difference between groups
    that all states share, tells the two apart.

    Values are first averaged over the positions of an example that hold the same state, so that
    long runs count once. With A..F the mean inner products of two such vectors,

    A of a vector with itself; B same state, same group, another example; C other state, same
    group, another example; D same state, another group; F other state, another group,

    the components are: group C-F, state D-F, interaction (B-D)-(C-F), residual A-B, of their sum.
    For all but D-F the states' own means are taken out first. With shuffled groups `group` and
    `interaction` are then 0 on average, which also means that small ones may come out below 0.
    (Variance components of a crossed random-effects design, estimated by U-statistics; ours.)

    Args:
        values: vectors, such as a node's output.
        groups: a label an example.
        states: what to condition on, such as the current token; without it only `group` and
            `residual` exist.
        positions: positions to use; all if not given.

    Returns:
        Rows `group`, `state`, `interaction`, `residual` (shares of the total variance), and
        `group_given_state` = (group + interaction) / (group + interaction + residual), and
        `recognition` = group / (group + interaction), with columns `component`, `share`, `low`,
        `high`. Intervals are the bootstrap of jackknife pseudo-values over examples.

    Raises:
        InputError: fewer than two groups, a group with one example, labels that do not fit, or
            values that do not vary.
    """
    refuse_other_kinds("values", values, Tensor, "a tensor 'batch pos d'")
    if values.ndim != 3:
        raise InputError(f"values has shape {tuple(values.shape)}: give a tensor 'batch pos d'")
    index, n_groups = group_index(groups, values.shape[0])
    at = list(parse_positions(positions, values.shape[1]))
    level = torch.zeros_like(groups)[:, None].expand(-1, len(at)) if states is None else None
    if level is None:
        refuse_other_kinds("states", states, Tensor, "a tensor 'batch pos' of labels")
        assert states is not None
        if states.shape != values.shape[:2]:
            raise InputError(
                f"states has shape {tuple(states.shape)} but values has {tuple(values.shape[:2])} "
                "as batch and pos: give one state a vector"
            )
        level = states[:, at]
    cells, present = _cell_means(values[:, at], level)
    if states is not None and present.shape[1] < 2:
        raise InputError(
            "states holds a single state: leave states out, there is none to tell apart"
        )
    raw = _mean_products(cells, present, index, n_groups)
    # Groups visit states unequally; without the states' own means that cannot pass for a group.
    centred = cells - cells.sum(0) / present.sum(0)
    own = _mean_products(centred * present, present, index, n_groups)
    with_states = states is not None
    shares = _shares(own.whole, raw.whole, with_states)
    parts = _shares(own.without_one, raw.without_one, with_states)
    n = len(index)
    rows = []
    for name, share in shares.items():
        # Leave-one-out pseudo-values: their mean corrects the bias of a ratio to first order.
        pseudo = n * share - (n - 1) * parts[name]
        _, low, high = mean_interval(pseudo)
        rows.append((name, float(share), float(low), float(high)))
    return pd.DataFrame(rows, columns=["component", "share", "low", "high"])


def check_labels(labels: Int[Tensor, "..."], name: str, n: int) -> None:
    """Raises InputError unless there is one label an example."""
    refuse_other_kinds(name, labels, Tensor, "a tensor of one label an example")
    if labels.shape != (n,):
        raise InputError(
            f"{name} has shape {tuple(labels.shape)}: give one label an example, shape ({n},)"
        )


def group_index(groups: Int[Tensor, " n"], n: int) -> tuple[Int[Tensor, " n"], int]:
    """Numbers the groups from 0 in order of their labels, and refuses what cannot be compared.

    Raises:
        InputError: not one label an example, fewer than two groups, a group of one example.
    """
    check_labels(groups, "groups", n)
    labels, index, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    if len(labels) < 2:
        raise InputError(
            f"groups holds {len(labels)} group: give examples of at least two, there is nothing to "
            "tell apart otherwise"
        )
    if int(counts.min()) < 2:
        lonely = int(labels[counts.argmin()])
        raise InputError(
            f"group {lonely} has a single example: give at least two a group, or drop that group"
        )
    return index, len(labels)


@dataclass(frozen=True)
class _Products:
    """Mean inner products A, B, C, D, F: of everything, and with each example left out."""

    whole: Float[Tensor, "five"]
    without_one: Float[Tensor, "five batch"]


def _cell_means(values: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Mean vector of every example in every state, and whether it was ever in that state."""
    _, state = torch.unique(level, return_inverse=True)
    member = F.one_hot(state).double()
    counts = member.sum(1)
    sums = torch.einsum("bpd,bps->bsd", values.double(), member)
    present = (counts > 0).double()
    cells = sums / counts.clamp_min(1)[..., None]
    centre = sums.sum((0, 1)) / counts.sum()
    return (cells - centre) * present[..., None], present[..., None]


def _mean_products(cells: Tensor, present: Tensor, index: Tensor, n_groups: int) -> _Products:
    sums, sums_out = _pair_sums(cells, index, n_groups)
    counts, counts_out = _pair_sums(present, index, n_groups)
    # Where there are no such pairs (one state alone), the sum is 0 as well.
    return _Products(
        sums / counts.clamp_min(0.5),
        sums_out / counts_out.clamp_min(0.5),
    )


def _pair_sums(x: Tensor, index: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Sums of inner products over the pairs A, B, C, D, F; and with each example left out.

    Each sum of products over a set of pairs is a squared norm of sums, so leaving an example out
    has a closed form: |S - y|^2 = |S|^2 - 2 S.y + |y|^2.
    """
    one_hot = F.one_hot(index, n_groups).to(x.dtype)
    by_group_state = torch.einsum("bg,bsd->gsd", one_hot, x)
    by_group, by_state = by_group_state.sum(1), by_group_state.sum(0)
    total, example = by_state.sum(0), x.sum(1)
    own = x.square().sum((1, 2))
    whole = example.square().sum(-1)

    def pair(sums: Tensor, seen: Tensor, self_product: Tensor) -> tuple[Tensor, Tensor]:
        return sums.square().sum(), sums.square().sum() - 2 * seen + self_product

    q_self = (own.sum(), own.sum() - own)
    q_example = (whole.sum(), whole.sum() - whole)
    q_gs = pair(by_group_state, (by_group_state[index] * x).sum((1, 2)), own)
    q_g = pair(by_group, (by_group[index] * example).sum(-1), whole)
    q_s = pair(by_state, (by_state * x).sum((1, 2)), own)
    q = pair(total, example @ total, whole)
    stacked = []
    for part in (0, 1):
        a, e, gs, g = q_self[part], q_example[part], q_gs[part], q_g[part]
        s, everything = q_s[part], q[part]
        same_group = (g - gs) - (e - a)
        stacked.append(torch.stack([a, gs - a, same_group, s - gs, (everything - s) - (g - gs)]))
    return stacked[0], stacked[1]


def _shares(own: Tensor, raw: Tensor, with_states: bool) -> dict[str, Tensor]:
    """Shares from mean products of vectors with (`own`) and without the states' means taken out."""
    a, b, c, d, f = own
    both, residual = b - d, a - b
    if not with_states:
        total = both + residual
        _refuse_constant(total, raw[0])
        return {"group": both / total, "residual": residual / total}
    group, state = c - f, raw[3] - raw[4]
    total = both + residual + state
    _refuse_constant(total, raw[0])
    return {
        "group": group / total,
        "state": state / total,
        "interaction": (both - group) / total,
        "residual": residual / total,
        "group_given_state": both / (both + residual),
        "recognition": group / both,
    }


def _refuse_constant(total: Tensor, scale: Tensor) -> None:
    if bool((total.abs() <= 1e-12 * scale.abs()).any()) or not bool((scale != 0).all()):
        raise InputError("values do not vary over examples: there is no variance to divide up")
