"""Every mechanism of the reference runs: how its numbers are computed, and how they are rebuilt.

`PYTHONPATH=. python tests/reference/mechanisms.py` writes `mechanisms.json` anew. It is to be run
when a reference run is trained anew or a definition changes, never to make a failing test pass.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from mechinterp.findings import find_mechanisms
from mechinterp.runs import Run
from tests.reference.attributions import PAIR_SEED, REFERENCE

KNOWN = Path(__file__).parent / "mechanisms.json"

STEPS = {
    "marginals-k20": ("step_4000", "last"),
    "markov-inf": ("last",),
    "markov-k4": ("last",),
}
EXAMPLES = 48
LEFT_OUT = ("attention",)
"""Tables of hundreds of rows, of which others hold the gist."""

Numbers = dict[str, dict[str, float | str]]


def mechanisms(name: str, ckpt: str) -> Numbers:
    """All tables of all mechanism tests of one checkpoint, as numbers and words under a name.

    Returns:
        `table/row` to its values by column. Ends of intervals are left out, but for the verdict on
        the selector head.
    """
    run = Run.open(REFERENCE / name)
    model, task = run.model(run.resolve_step(ckpt)).eval(), run.task()
    pairs = task.pairs(EXAMPLES, torch.Generator().manual_seed(PAIR_SEED))
    with torch.inference_mode():
        diagnostics = task.diagnostics(model, EXAMPLES, "quick")
    found: Numbers = {}
    for finding in find_mechanisms(model, task, pairs, diagnostics):
        if finding.name == "phase":
            found["phase/says"] = {"answer": finding.summary[0].partition("(")[0].strip()}
        for title, table in finding.tables.items():
            if title not in LEFT_OUT:
                found |= _flat(title, table)
    return found


def mismatches(found: Numbers, known: Numbers, rtol: float, atol: float, counted: float) -> list:
    """Where two sets of numbers differ by more than the tolerances.

    Args:
        found: one set.
        known: the other.
        rtol: share of the known value that it may be off by.
        atol: in the unit of the value, added to it.
        counted: the same for shares of examples that are right, which move by whole examples.
    """
    off = [(row, "missing") for row in known.keys() ^ found.keys()]
    for row in known.keys() & found.keys():
        for column, value in known[row].items():
            now = found[row].get(column)
            if isinstance(value, str) or value is None or isinstance(now, str) or now is None:
                same = now == value
            else:
                most = counted if column in ("accuracy", "best") else atol
                same = abs(now - value) <= most + rtol * abs(value)
            if not same:
                off.append((f"{row}/{column}", value, now))
    return off


def _flat(title: str, table: pd.DataFrame) -> Numbers:
    found: Numbers = {}
    whole = title == "selector_verdict"
    for number, row in enumerate(table.to_dict("records")):
        words = {k: v for k, v in row.items() if isinstance(v, str) and not whole}
        name = "/".join([title, *words.values()]) if words else f"{title}/{number}"
        kept = {
            str(k): _plain(v)
            for k, v in row.items()
            if k not in words and (whole or not str(k).endswith(("low", "high")))
        }
        if name in found or (title == "patching_resid_pre"):
            name = f"{name}/{number}"
        found[name] = kept
    return found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if pd.isna(value):
        return None
    return round(float(value), 7)


def main() -> None:
    """Writes the file of known mechanisms."""
    known = {
        name: {ckpt: mechanisms(name, ckpt) for ckpt in ckpts} for name, ckpts in STEPS.items()
    }
    KNOWN.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
