"""Gives every argument of every public function values of the wrong kind, as a user's script would.

Run as a script, in a process without the axis checks of the tests. Prints how many were tried, and
a line for each that ended in anything but an answer or an InputError.
"""

import contextlib
import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import circuits
from circuits import Circuit, Graph, InputError, selector_evidence, task_vectors
from tests.circuits.models import random_tokens, tiny_model

ODD = (None, 3, -1, 3.5, float("nan"), True, "x", b"x", [1, 2], (), ("a",), {}, {1: 2}, object(),
       torch.ones(2), torch.ones(()))  # fmt: skip


def calls() -> dict[Callable[..., Any], dict[str, Any]]:
    """Public functions with arguments that they take."""
    model, clean, corrupt = tiny_model(), random_tokens(4, 6), random_tokens(4, 6, seed=2)
    groups = torch.tensor([0, 1, 0, 1])
    effects = {"clean": clean, "metric": "loss"}
    vectors = task_vectors(model, clean, groups, "M0")
    reading = {"tokens": clean, "vectors": vectors}
    places = {"selector": [1], "decide": [3], "answer": [4], "scored": [4]}
    looks = {"queries": [4], "keys": [1]}
    evidence = {1: selector_evidence(model, clean, corrupt, **places)}
    named = {
        "Graph.of": {},
        "ablated": {"heads": ["L0H0"]},
        "attention_patterns": {"tokens": clean, "groups": {"a": (1, 2)}},
        "edge_effects": effects | {"corrupt": corrupt},
        "edge_gradients": effects | {"corrupt": corrupt, "method": "eap"},
        "faithfulness": effects | {"circuit": Circuit.of(Graph.of(model), ["embed->M0"])},
        "head_effects": effects,
        "induction_scores": {"tokens": clean},
        "k_composition": {"tokens": clean, "source": "L0H0"},
        "knocked_out": {"head": "L0H0", "n_pos": 6, **looks},
        "knockout_effects": effects | looks,
        "logit_attribution": {"tokens": clean, "scored": (2, 3)},
        "logit_lens": {"tokens": clean, "scored": (2, 3)},
        "lone_head_effects": effects,
        "node_output": {"tokens": clean, "node": "M0"},
        "pair_effects": effects | {"heads": ["L0H0", "L0H1"]},
        "patch_effects": effects | {"corrupt": corrupt, "stream": "z"},
        "patch_task_vector": reading
        | {"groups": groups, "targets": torch.tensor([1, 0, 1, 0]), "answers": _answers},
        "probe_task_vectors": reading | {"tokens": random_tokens(4, 6, seed=5), "groups": groups},
        "prune": {"clean": clean, "rounds": 1},
        "rank_curve": reading,
        "selector_evidence": {"clean": clean, "corrupt": corrupt, **places},
        "selector_series": {"evidence": evidence, "head": "L0H0"},
        "task_vectors": {"tokens": clean, "groups": groups, "node": "M0"},
        "variance_shares": {"values": torch.randn(4, 6, 3), "groups": groups},
    }
    found = {}
    for name, given in named.items():
        function = Graph.of if name == "Graph.of" else getattr(circuits, name)
        takes = inspect.signature(function).parameters
        found[function] = ({"model": model} if "model" in takes else {}) | given
    return found


def _answers(labels: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return torch.full((*tokens.shape, 11), 1 / 11)


def mishaps() -> Iterator[str | None]:
    """A line for each odd argument that is not told from a right one in one line; None for others.

    Raises:
        InputError: the arguments that should be right are not.
    """
    for function, given in calls().items():
        _enter(function, given)
        for argument in _arguments(function):
            for odd in ODD:
                try:
                    _enter(function, given | {argument: odd})
                except InputError as error:
                    yield f"{error} has lines" if "\n" in str(error) else None
                except Exception as error:
                    at = traceback.extract_tb(error.__traceback__)[-1]
                    where = f"{Path(at.filename).name}:{at.lineno}"
                    name = getattr(function, "__qualname__", str(function))
                    said = str(error).splitlines()[:1]
                    yield f"{name} {argument}={odd!r}: {type(error).__name__} {said} {where}"
                else:
                    yield None


def _arguments(function: Callable[..., Any]) -> list[str]:
    """Those that have a name of their own."""
    takes = inspect.signature(function).parameters.values()
    return [p.name for p in takes if p.kind is not inspect.Parameter.VAR_KEYWORD]


def _enter(function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Calls a function, and enters and leaves what it gives, if that can be entered."""
    answer = function(**given)
    if isinstance(answer, contextlib.AbstractContextManager):
        with answer:
            pass


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = list(mishaps())
    print(f"{len(lines)} tried", *[line for line in lines if line], sep="\n")
