"""AdamW with learning rates for groups of parameters and for heads, and its state as tensors."""

import math
import re

import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.errors import InputError
from mechinterp.config import TrainingConfig
from mechinterp.head_updates import scale_updates, slice_names


def make_optimizer(model: HookedTransformer, config: TrainingConfig) -> torch.optim.AdamW:
    """Makes the optimizer of a run: fused AdamW, one group for each learning-rate factor.

    A factor's pattern is searched for in a parameter's name, `blocks.0.attn.W_Q`, and in those of
    its heads, `L0H3.W_Q`; the first pattern that is found decides. Heads of one tensor may differ.

    Raises:
        InputError: a factor is malformed, or its pattern decides nothing.
    """
    factors = [_parse_factor(text) for text in config.lr_factor]
    groups: dict[float, list[torch.nn.Parameter]] = {}
    slices: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
    used: set[str] = set()
    for name, parameter in model.named_parameters():
        heads = slice_names(name, len(parameter))
        found = [_first(factors, (name, *also)) for also in ([(head,) for head in heads] or [()])]
        used |= {pattern for pattern, _ in found}
        rates = [factor for _, factor in found]
        if len(set(rates)) > 1:
            slices.append((parameter, torch.tensor(rates, dtype=torch.float64)))
        groups.setdefault(rates[0] if len(set(rates)) == 1 else 1.0, []).append(parameter)
    _refuse_unused(model, factors, used)
    optimizer = torch.optim.AdamW(
        [{"params": parameters, "factor": factor} for factor, parameters in groups.items()],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )
    if slices:
        scale_updates(optimizer, slices)
    return optimizer


def _first(factors: list[tuple[str, float]], names: tuple[str, ...]) -> tuple[str, float]:
    """Gives the first pattern that is found in one of the names, and its factor; "" for none."""
    found = (one for one in factors if any(re.search(one[0], name) for name in names))
    return next(found, ("", 1.0))


def _refuse_unused(
    model: HookedTransformer, factors: list[tuple[str, float]], used: set[str]
) -> None:
    for pattern, _ in factors:
        if pattern not in used:
            names = ", ".join(name for name, _ in list(model.named_parameters())[:4])
            raise InputError(
                f"lr_factor pattern {pattern!r} decides no parameter's rate; "
                f"names look like {names}, those of heads like L0H0.W_Q"
            )


def _parse_factor(text: str) -> tuple[str, float]:
    pattern, _, number = text.rpartition("=")
    try:
        re.compile(pattern)
        factor = float(number)
    except (re.error, ValueError):
        factor = math.nan
    if not pattern or not (0 <= factor < math.inf):
        raise InputError(
            f"lr_factor is {text!r}; it has to be PATTERN=FACTOR, "
            "for example 'blocks.0.attn.W_[QK]=0.1' or 'L0H3.W_Q=0.1'"
        )
    return pattern, factor


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Gives the learning rate of the update that leads from `step` to `step + 1`."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.lr_schedule == "constant":
        return config.lr
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.lr * 0.5 * (1 + math.cos(math.pi * progress))


def scheduled_steps(config: TrainingConfig) -> int | None:
    """Gives the length of training where the learning rate at a step depends on it, else None."""
    return None if config.lr_schedule == "constant" else config.steps


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets every group's rate to `rate` times the group's own factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def optimizer_state(
    model: HookedTransformer, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Gives the optimizer's moments as tensors named after the parameters they belong to."""
    return {
        f"{kind}/{name}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state[parameter].items()
    }


def restore_optimizer(
    model: HookedTransformer, optimizer: torch.optim.Optimizer, state: dict[str, Tensor]
) -> None:
    """Puts back what `optimizer_state` gave, bit for bit.

    Raises:
        InputError: a moment of some parameter is missing.
    """
    for name, parameter in model.named_parameters():
        keys = [f"{kind}/{name}" for kind in ("step", "exp_avg", "exp_avg_sq")]
        if keys[0] not in state:
            continue  # a checkpoint at step 0 has no moments yet
        missing = [key for key in keys if key not in state]
        if missing:
            raise InputError(f"the stored optimizer state lacks {', '.join(missing)}")
        optimizer.state[parameter] = {
            key.split("/")[0]: state[key].to(parameter.device, copy=True) for key in keys
        }
