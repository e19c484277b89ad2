"""What a trace is of, in words: the lines it begins with, its title, the name of its page."""

import re

from mechinterp.config import task_name
from mechinterp.other_models import Source
from mechinterp.other_models_tracing import MetricName, OtherTraced
from mechinterp.tracing import MEASURED_ON, TESTED_ON, Traced

UNITS: dict[MetricName, str] = {
    "loss": "the answer's cross-entropy (nats)",
    "logit-diff": "the answer's logit minus the wrong one's",
    "kl": "the KL divergence (nats) from the whole model",
}
"""What each metric is, read at the last position of every prompt."""


def page_name(source: Source) -> str:
    """Gives the name of the page about another model, without its ending."""
    name = re.sub(r"[^A-Za-z0-9._+=,@-]+", "-", source.name).strip("-.") or "model"
    return name if source.step is None else f"{name}-step_{source.step}"


def title_of(traced: Traced | OtherTraced) -> str:
    """Gives the title of a trace's page."""
    return f"{_subject(traced)}, {traced.options.ablation} ablation"


def header_of(traced: Traced | OtherTraced) -> str:
    """Gives the lines that a trace begins with: what was loaded, and what an effect is."""
    return _run_header(traced) if isinstance(traced, Traced) else _other_header(traced)


def _subject(traced: Traced | OtherTraced) -> str:
    if isinstance(traced, Traced):
        return f"{traced.run.name}, step {traced.step}"
    step = traced.source.step
    return traced.source.name if step is None else f"{traced.source.name}, step {step}"


def _run_header(traced: Traced) -> str:
    config, options = traced.run.config, traced.options
    model = config.model
    return (
        f"{_subject(traced)} of {config.training.steps}: "
        f"{task_name(config.task)}, {model.n_layers} layers x {model.n_heads} heads, "
        f"d_model {model.d_model}, {traced.run.meta['n_params']:,} parameters\n"
        f"{options.ablation} ablation, {options.examples} examples; effect = rise of the mean "
        "cross-entropy (nats) at the scored positions, with its 95 % interval\n"
        f"diagnostics on {min(options.examples, MEASURED_ON)} examples, mechanisms on at most "
        f"{min(options.examples, TESTED_ON)}"
    )


def _other_header(traced: OtherTraced) -> str:
    cfg, options = traced.source.cfg, traced.options
    pairs = f"{options.examples} of the {traced.n_pairs} pairs of {traced.data.name}"
    unit = UNITS[traced.metric]
    lines = [
        f"{_subject(traced)}: {cfg.original_architecture}, {cfg.n_layers} layers x {cfg.n_heads} "
        f"heads, d_model {cfg.d_model}, {traced.n_params:,} parameters",
        f"{options.ablation} ablation, {pairs}; effect = rise of {unit} at the last position, with "
        "its 95 % interval",
        f"{traced.metric} {traced.clean.value:.3f} (s.e. {traced.clean.se:.3f}) on the clean "
        "prompts",
    ]
    if traced.corrupt is not None:
        lines[-1] += f", {traced.corrupt.value:.3f} ({traced.corrupt.se:.3f}) on the corrupt ones"
    return "\n".join(lines)
