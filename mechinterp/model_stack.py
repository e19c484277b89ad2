"""The weights of several runs of one shape as one stack: one forward and backward pass for all."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformer_lens import HookedTransformer

from mechinterp.config import TrainingConfig
from mechinterp.model import weights_of
from mechinterp.training_loop import FORWARD


class _Scored(nn.Module):
    """A model's logits at the scored positions, as a module of its own."""

    def __init__(self, model: HookedTransformer, training: TrainingConfig, scored: Tensor) -> None:
        super().__init__()
        self.model, self._forward, self._scored = model, FORWARD[training.forward], scored

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch scored d_vocab"]:
        return self._forward(self.model, tokens, self._scored)


class ModelStack:
    """The weights of all runs with a leading axis for the run, and their common optimizer."""

    def __init__(
        self, models: list[HookedTransformer], training: TrainingConfig, scored: Tensor
    ) -> None:
        self.models = models
        self.scored = scored
        stacked, _ = stack_module_state([_Scored(m, training, scored) for m in models])
        self.weights = {name: nn.Parameter(value.detach()) for name, value in stacked.items()}
        body = _Scored(models[0], training, scored)
        # The model's own tensors are replaced by a run's in each call.
        self._call = vmap(lambda weights, tokens: functional_call(body, weights, (tokens,)))
        self._optimizer = torch.optim.AdamW(
            self.weights.values(),
            lr=training.lr,
            betas=(training.beta1, training.beta2),
            eps=training.eps,
            weight_decay=training.weight_decay,
            fused=True,
        )

    def update(self, tokens: Int[Tensor, "run batch pos"], rate: float) -> Float[Tensor, " run"]:
        """Makes one step of every run and gives their losses (nats)."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        # The fused attention kernel of CPUs knows no stacks.
        with sdpa_kernel(SDPBackend.MATH):
            log_probs = self._call(self.weights, tokens).log_softmax(-1)
        targets = tokens[:, :, self.scored + 1, None]
        losses = -log_probs.gather(-1, targets).mean((1, 2, 3))
        self._optimizer.zero_grad(set_to_none=True)
        # Each run's weights are in its own loss alone, so the sum has the gradient of each.
        losses.sum().backward()
        self._optimizer.step()
        return losses.detach()

    @torch.no_grad()
    def unstack(self, index: int) -> tuple[HookedTransformer, dict[str, Tensor]]:
        """Gives one run's model as it is now, and its moments as `optimizer_state` names them."""
        model = self.models[index]
        own = {name.removeprefix("model."): value for name, value in self.weights.items()}
        # Copied as they are: whoever diverged is found out by its loss, as without a stack.
        for name, tensor in weights_of(model).items():
            if name in own:
                tensor.copy_(own[name][index])
        moments = {}
        for name, parameter in own.items():
            for kind, value in self._optimizer.state[parameter].items():
                moments[f"{kind}/{name}"] = value if value.ndim == 0 else value[index].clone()
        return model, moments
