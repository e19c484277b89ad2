"""The tasks of both papers, made from their configuration."""

from mechinterp.config import MarginalsConfig, TaskConfig
from mechinterp.tasks.base import LogitsOf, Measure, Pairs, Task, fork
from mechinterp.tasks.marginals import Marginals
from mechinterp.tasks.markov_chains import MarkovChains

__all__ = ["LogitsOf", "Marginals", "MarkovChains", "Measure", "Pairs", "Task", "fork", "make_task"]


def make_task(config: TaskConfig) -> Marginals | MarkovChains:
    """Makes the task that a configuration describes.

    Raises:
        InputError: the configuration asks for something the task cannot give.
    """
    return Marginals(config) if isinstance(config, MarginalsConfig) else MarkovChains(config)
