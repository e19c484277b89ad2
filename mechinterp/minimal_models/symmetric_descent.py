"""Gradient descent of the two scalars: slow linear growth, then a cliff into 2-Gen."""

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import pandas as pd

from circuits.errors import InputError
from mechinterp.minimal_models.chain_sample import ChainSample
from mechinterp.minimal_models.symmetric_attention import SymmetricAttention, slopes

Scalar = Literal["beta", "delta"]

PASSED = 0.1
"""The cliff is behind when the loss falls at less than this share of its fastest rate."""

LEAST_DROP = 0.1
"""A cliff removes at least this share of the excess loss; less is drift."""


@dataclass(frozen=True)
class Descent:
    """Plain gradient descent on one fixed sample of chains (Adam would hide the linear growth)."""

    learning_rate: float
    """Time passes in units of learning rate times step, so that rates can be compared."""
    steps: int = 400
    """Largest number of steps."""
    start: SymmetricAttention = field(default_factory=SymmetricAttention)
    """Where beta and delta start; alpha and mu stay as they are here."""
    remove: tuple[Scalar, ...] = ()
    """Scalars whose gradient at beta = delta = 0 is subtracted at every step: c_beta or c_delta."""
    settled: float = 0.01
    """Stop once past the fastest fall and at this share of its rate; 0 to take every step."""

    def __post_init__(self) -> None:
        """Refuses settings out of range."""
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate is {self.learning_rate:g}; it has to be positive")
        if self.steps < 1:
            raise InputError(f"steps is {self.steps}; it has to be at least 1")
        if unknown := set(self.remove) - {"beta", "delta"}:
            raise InputError(f"remove names {sorted(unknown)}; allowed: beta, delta")


class Cliff(NamedTuple):
    """When a trajectory falls from 1-Gen to 2-Gen; times are learning rate times steps."""

    reached: bool
    """Whether the cliff lies inside the trajectory."""
    tau: float
    """When half of the whole drop is done; not a number unless reached."""
    steepest: float
    """When the loss falls fastest; not a number unless reached."""
    drop: float
    """Loss at the start less loss at the end, in nats."""


def descend(sample: ChainSample, descent: Descent) -> pd.DataFrame:
    """How do beta and delta move, and what happens to the loss?

    Args:
        sample: the chains; the loss is the mean over them.
        descent: rate, start, and which constant gradients are removed.

    Returns:
        One row a step, the start included: `step`, `time` (learning rate times step), `beta`,
        `delta`, `loss` and `excess` (nats; KL of the model to the true row) and `slope_beta`,
        `slope_delta` (dL/dbeta and dL/ddelta, before anything is removed). Costs one backward pass
        over the sample for each step: about 7 ms for every 100 000 states.

    Raises:
        InputError: the scalars run away; the learning rate is too large.
    """
    constant = _mean_slopes(replace(descent.start, beta=0.0, delta=0.0), sample)
    removed = {name: constant[name] if name in descent.remove else 0.0 for name in constant}
    model, rows, fastest = descent.start, [], 0.0
    for step in range(descent.steps + 1):
        slope = _mean_slopes(model, sample)
        rows.append(_row(step, descent, model, slope, sample.entropy))
        move = {n: descent.learning_rate * (slope[n] - removed[n]) for n in ("beta", "delta")}
        rate = sum(move[n] * slope[n] for n in move)
        fastest = max(fastest, rate)
        if rate < descent.settled * fastest:
            break
        model = replace(model, beta=model.beta - move["beta"], delta=model.delta - move["delta"])
    return pd.DataFrame(rows)


def cliff(trajectory: pd.DataFrame) -> Cliff:
    """When does the loss fall off the plateau?

    tau is when half of the drop from the first loss to the last one is done, interpolated between
    steps (`steepest` beside it is the middle of the step with the fastest fall). The criterion is
    ours. The cliff counts as reached when the trajectory ends at less than a tenth of its fastest
    rate, and lower by at least a tenth of the excess loss that it started from.

    Args:
        trajectory: what `descend` gave.

    Returns:
        The times, in units of learning rate times steps.
    """
    time, loss = trajectory["time"].to_numpy(), trajectory["loss"].to_numpy()
    drop = float(loss[0] - loss[-1])
    missed = Cliff(False, float("nan"), float("nan"), drop)
    if len(time) < 3 or drop < LEAST_DROP * float(trajectory["excess"].iloc[0]):
        return missed
    rates = (loss[:-1] - loss[1:]) / (time[1:] - time[:-1])
    if rates[-1] > PASSED * rates.max():
        return missed
    half = loss[0] - drop / 2
    after = int((loss <= half).argmax())
    share = (loss[after - 1] - half) / (loss[after - 1] - loss[after])
    tau = time[after - 1] + share * (time[after] - time[after - 1])
    fastest = int(rates.argmax())
    return Cliff(True, float(tau), float(time[fastest] + time[fastest + 1]) / 2, drop)


def _mean_slopes(model: SymmetricAttention, sample: ChainSample) -> dict[str, float]:
    found = slopes(model, sample)
    return {name: getattr(found, name).mean().item() for name in ("loss", "beta", "delta")}


def _row(
    step: int, descent: Descent, model: SymmetricAttention, slope: dict[str, float], least: float
) -> dict[str, float | int]:
    return {
        "step": step,
        "time": step * descent.learning_rate,
        "beta": model.beta,
        "delta": model.delta,
        "loss": slope["loss"],
        "excess": slope["loss"] - least,
        "slope_beta": slope["beta"],
        "slope_delta": slope["delta"],
    }
