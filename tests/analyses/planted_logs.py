"""Runs on disk whose logs hold curves that were drawn by hand."""

from mechinterp.config import RunConfig
from mechinterp.runs.writer import RunWriter


def plant_log(folder, name, config: RunConfig, rows):
    """Writes a run with these rows of metrics (dictionaries with `step`) and no checkpoint."""
    with RunWriter.open(folder / name, config, 1, False, "") as run:
        for row in rows:
            run.log(row)
    return name


def falling(start, at, steps, width=40.0):
    """A loss that is `start` until `at - width`, 0 after `at + width`, a straight line between."""
    return [start * min(1.0, max(0.0, (at + width - step) / (2 * width))) for step in steps]
