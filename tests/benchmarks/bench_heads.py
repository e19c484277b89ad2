"""How much faster are head ablation and activation patching here than the usual loops?

Head ablation against one `run_with_hooks` a head; activation patching against
`transformer_lens.patching`. Same model (4 layers, 4 heads, d_model 128), same 256 x 16 tokens, same
numbers, which are compared. The routes take turns, so that a change in the machine's speed falls
on both, and the fastest round of each counts.
"""

import io
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial

import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig, patching

from circuits.activation_patching import patch_effects
from circuits.head_ablation import head_effects

N_LAYERS, N_HEADS, EXAMPLES, N_POS, D_VOCAB = 4, 4, 256, 16, 40
ROUNDS = 3
WANTED = {"head_effects": 1.8, "patch_effects": 1.0}


def build() -> HookedTransformer:
    """A random model of the reference run's size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        config = HookedTransformerConfig(
            n_layers=N_LAYERS,
            d_model=128,
            n_ctx=32,
            d_head=32,
            n_heads=N_HEADS,
            d_mlp=512,
            act_fn="gelu",
            d_vocab=D_VOCAB,
            normalization_type="LN",
            seed=42,
        )
        return HookedTransformer(config).requires_grad_(False)


def loss_at(
    tokens: torch.Tensor, scored: tuple[int, ...]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The mean loss over the scored positions, an example."""
    target = tokens[:, [position + 1 for position in scored]]

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0].mean(-1)

    return loss


def heads_by_hooks(
    model: HookedTransformer,
    tokens: torch.Tensor,
    scored: tuple[int, ...],
    loss: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """One full forward pass a head."""

    def silence(z: torch.Tensor, hook: object, head: int) -> torch.Tensor:
        z[:, :, head] = 0.0
        return z

    read = tokens[:, : max(scored) + 1]
    base = loss(model(read)[:, scored])
    effects = []
    for layer in range(N_LAYERS):
        for head in range(N_HEADS):
            hooks = [(f"blocks.{layer}.attn.hook_z", partial(silence, head=head))]
            effects.append(loss(model.run_with_hooks(read, fwd_hooks=hooks)[:, scored]) - base)
    return torch.stack(effects)


def patches_by_transformer_lens(
    model: HookedTransformer,
    clean: torch.Tensor,
    corrupt: torch.Tensor,
    scored: tuple[int, ...],
    loss: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Its residual-stream patching, with its progress bar sent away."""
    read = max(scored) + 1
    clean, corrupt = clean[:, :read], corrupt[:, :read]
    with redirect_stderr(io.StringIO()):
        _, cache = model.run_with_cache(clean)
        metric = lambda logits: loss(logits[:, scored]).mean()  # noqa: E731
        found = patching.get_act_patch_resid_pre(model, corrupt, cache, metric)
    return found - loss(model(corrupt)[:, scored]).mean()


def compare(name: str, ours: Callable[[], object], usual: Callable[[], object]) -> float:
    """Seconds of both in turns; prints and returns the ratio."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for place, route in enumerate((ours, usual)):
            started = time.perf_counter()
            route()
            best[place] = min(best[place], time.perf_counter() - started)
    ratio = best[1] / best[0]
    print(f"{name:<44}{best[0]:>9.2f} s{best[1]:>9.2f} s{ratio:>8.2f} x")
    return ratio


def main() -> None:
    """Prints the table; fails where a target is missed or numbers differ."""
    torch.set_grad_enabled(False)
    model = build()
    generator = torch.Generator().manual_seed(0)
    clean, corrupt = torch.randint(0, D_VOCAB, (2, EXAMPLES, N_POS), generator=generator)
    print(f"{'':<44}{'here':>11}{'usual':>11}")
    missed = []
    for scored in ((10, 11, 12, 13, 14), tuple(range(N_POS - 1))):
        loss = loss_at(clean, scored)
        places = f"{len(scored)} of {N_POS} positions scored"
        ours = partial(head_effects, model, clean, loss, scored=scored)
        usual = partial(heads_by_hooks, model, clean, scored, loss)
        torch.testing.assert_close(ours().per_example, usual(), rtol=0, atol=1e-5)
        if compare(f"16 heads, {places}", ours, usual) < WANTED["head_effects"]:
            missed.append(f"head_effects, {places}")
    loss = loss_at(clean, (10, 11, 12, 13, 14))
    scored = (10, 11, 12, 13, 14)
    ours = partial(patch_effects, model, clean, corrupt, loss, "resid_pre", scored=scored)
    usual = partial(patches_by_transformer_lens, model, clean, corrupt, scored, loss)
    grid = torch.tensor(ours().grid().to_numpy(), dtype=torch.float32)[:, : max(scored) + 1]
    torch.testing.assert_close(grid, usual(), rtol=0, atol=1e-5)
    if compare("60 residual-stream patches, 5 scored", ours, usual) < WANTED["patch_effects"]:
        missed.append("patch_effects")
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
