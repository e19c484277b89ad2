"""The slow, obvious way: one TransformerLens forward pass with hooks for every edge.

Nothing of `circuits` is used here. Readers get inputs of their own through TransformerLens's split
q, k, v inputs and MLP inputs; a hook on one of them takes out what the source writes in this very
run and puts the replacement in. Grouped keys and values are ungrouped first.
"""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Values = dict[str, Tensor]
"""Replacement of each node's output, by node name."""


@contextmanager
def split_inputs(model: Any):
    """Turns on inputs of their own for all readers, and puts the flags back."""
    flags = ("use_split_qkv_input", "use_hook_mlp_in", "ungroup_grouped_query_attention")
    before = {flag: getattr(model.cfg, flag) for flag in flags}
    for flag in flags:
        setattr(model.cfg, flag, True)
    if model.cfg.n_key_value_heads is None:
        model.cfg.ungroup_grouped_query_attention = before["ungroup_grouped_query_attention"]
    if model.cfg.attn_only:
        model.cfg.use_hook_mlp_in = before["use_hook_mlp_in"]
    try:
        yield
    finally:
        for flag, value in before.items():
            setattr(model.cfg, flag, value)


def source_names(model: Any) -> list[str]:
    names = ["embed"]
    for layer in range(model.cfg.n_layers):
        names += [f"L{layer}H{head}" for head in range(model.cfg.n_heads)]
        names += [] if model.cfg.attn_only else [f"M{layer}"]
    return names


def edge_names(model: Any) -> list[str]:
    """Every edge, written out from the definition."""
    names: list[str] = []
    before = ["embed"]
    for layer in range(model.cfg.n_layers):
        heads = [f"L{layer}H{head}" for head in range(model.cfg.n_heads)]
        names += [f"{s}->{head}.{x}" for head in heads for x in "qkv" for s in before]
        if not model.cfg.attn_only:
            seen = before if model.cfg.parallel_attn_mlp else before + heads
            names += [f"{s}->M{layer}" for s in seen]
            heads = [*heads, f"M{layer}"]
        before = before + heads
    return names + [f"{s}->logits" for s in before]


def hooks_for(model: Any, cut: Iterable[str], values: Values, at: list[int] | None = None):
    """Hooks that record what every node writes and change what the readers of cut edges read."""
    written: dict[str, Tensor] = {}
    hooks: list[tuple[str, Callable[..., Tensor | None]]] = []
    last = model.cfg.n_layers - 1

    def record_heads(z: Tensor, hook: Any) -> None:
        layer = int(hook.name.split(".")[1])
        for head in range(model.cfg.n_heads):
            written[f"L{layer}H{head}"] = z[:, :, head] @ model.blocks[layer].attn.W_O[head]

    def record_mlp(out: Tensor, hook: Any) -> None:
        written[f"M{hook.name.split('.')[1]}"] = out

    def record_embed(resid: Tensor, hook: Any) -> None:
        written["embed"] = resid

    hooks.append(("blocks.0.hook_resid_pre", record_embed))
    for layer in range(model.cfg.n_layers):
        hooks.append((f"blocks.{layer}.attn.hook_z", record_heads))
        if not model.cfg.attn_only:
            hooks.append((f"blocks.{layer}.hook_mlp_out", record_mlp))

    def exchange(source: str, head: int | None) -> Callable[..., Tensor]:
        def hook(x: Tensor, hook: Any) -> Tensor:
            gap = values[source] - written[source]
            if at is not None:
                kept = torch.zeros(gap.shape[1], dtype=torch.bool)
                kept[at] = True
                gap = gap * kept[:, None]
            x = x.clone()
            if head is None:
                return x + gap
            x[:, :, head] += gap
            return x

        return hook

    for edge in cut:
        source, reader = edge.split("->")
        if reader == "logits":
            hooks.append((f"blocks.{last}.hook_resid_post", exchange(source, None)))
        elif reader.startswith("M"):
            hooks.append((f"blocks.{reader[1:]}.hook_mlp_in", exchange(source, None)))
        else:
            node, x = reader.split(".")
            layer, head = node[1:].split("H")
            hooks.append((f"blocks.{layer}.hook_{x}_input", exchange(source, int(head))))
    return hooks, written


def slow_logits(
    model: Any,
    tokens: Tensor,
    cut: Iterable[str],
    values: Values,
    at: list[int] | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Logits with a set of edges cut, all positions or only `at`."""
    hooks, _ = hooks_for(model, cut, values, at)
    with torch.no_grad(), split_inputs(model):
        return model.run_with_hooks(tokens, fwd_hooks=hooks, attention_mask=mask)


def written_by(model: Any, tokens: Tensor, mask: Tensor | None = None) -> Values:
    """What every node writes in an undisturbed run."""
    hooks, written = hooks_for(model, [], {})
    with torch.no_grad(), split_inputs(model):
        model.run_with_hooks(tokens, fwd_hooks=hooks, attention_mask=mask)
    return written


def replacements(
    model: Any,
    ablation: str,
    clean: Tensor,
    corrupt: Tensor | None = None,
    partner: Tensor | None = None,
) -> Values:
    """Replacement values, from their definition, for batches without padding."""
    if ablation == "patch":
        assert corrupt is not None
        return written_by(model, corrupt)
    written = written_by(model, clean)
    if ablation == "zero":
        return {name: torch.zeros_like(out) for name, out in written.items()}
    if ablation == "mean":
        return {name: out.mean(0, keepdim=True).expand_as(out) for name, out in written.items()}
    assert partner is not None
    return {name: out[partner] for name, out in written.items()}


def slow_effects(
    model: Any,
    tokens: Tensor,
    metric: Callable[[Tensor], Tensor],
    values: Values,
    edges: Iterable[str] | None = None,
    at: list[int] | None = None,
    mask: Tensor | None = None,
) -> dict[str, Tensor]:
    """Per-example effects, one forward pass an edge; `metric` reads logits at all positions."""
    baseline = metric(slow_logits(model, tokens, [], values, at, mask))
    return {
        edge: metric(slow_logits(model, tokens, [edge], values, at, mask)) - baseline
        for edge in (edge_names(model) if edges is None else edges)
    }
