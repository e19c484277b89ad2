"""Which steps are kept: dense enough early and around a transition, cheap in between."""

from mechinterp.config import CheckpointConfig


def checkpoint_steps(config: CheckpointConfig, steps: int) -> tuple[int, ...]:
    """Gives the steps whose weights are written, in order.

    Args:
        config: regular spacing, number of log-spaced early steps, and further named steps.
        steps: the last step of the run.

    Returns:
        0, `steps`, the named steps, the multiples of `save_every`, and `save_log` log-spaced steps
        before the first regular one (before the last step when there are no regular ones).
    """
    kept = {0, steps, *config.save_at}
    if config.save_every:
        kept.update(range(0, steps + 1, config.save_every))
    horizon = min(config.save_every or steps, steps)
    kept.update(
        round(horizon ** (i / (config.save_log + 1)))
        for i in range(1, config.save_log + 1)
        if horizon > 1
    )
    return tuple(sorted(step for step in kept if step <= steps))
