"""Reading a run: its configuration, metrics, weights and models."""

import dataclasses
import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import RunConfig
from mechinterp.runs.checkpoint import LazyWeights
from mechinterp.runs.locate import find_run, is_run
from mechinterp.runs.manifest import (
    MANIFEST,
    MODEL,
    check_file,
    read_manifest,
    step_directory,
    steps_of,
)
from mechinterp.runs.metrics_log import METRICS, read_rows
from mechinterp.runs.oversize import refuse_oversize
from mechinterp.runs.record import read_record

if TYPE_CHECKING:
    import transformer_lens

    import mechinterp.tasks.base


@dataclasses.dataclass(frozen=True)
class Run:
    """A run on disk, finished or still growing."""

    path: Path
    config: RunConfig
    meta: dict[str, Any]
    """All else in run.json: task, n_params, command, created, threads, platform, versions."""

    @classmethod
    def open(cls, name_or_path: str | Path, root: Path | None = None) -> "Run":
        """Opens a run by name or path; reads run.json only.

        Raises:
            InputError: there is no such run (lists those there are), or run.json is malformed.
        """
        path = find_run(name_or_path, root)
        return cls(path, *read_record(path))

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        return self.path.name

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in order; read from disk at each call."""
        return steps_of(self.path)

    def resolve_step(self, spec: str | int) -> int:
        """Says which step is meant.

        Args:
            spec: 4000, "4000", "step_4000", "last", "first", or a path to a checkpoint of this run.

        Raises:
            InputError: there is no such checkpoint; lists the nearest ones.
        """
        text = str(spec)
        steps = self.steps
        if not steps:
            raise InputError(f"run {self.name} has no checkpoint yet")
        if text in ("last", "first"):
            return steps[-1 if text == "last" else 0]
        if os.sep in text:
            return self._step_of_path(Path(text))
        match = re.fullmatch(r"(?:step_)?0*([0-9]{1,15})", text)
        if match is None:
            raise InputError(
                f"{text[:80]!r} is no step; allowed are step_4000, 4000, last, first, or a path "
                f"to a checkpoint directory; run {self.name} has {_range(steps)}"
            )
        step = int(match[1])
        if step not in steps:
            nearest = sorted(sorted(steps, key=lambda other: abs(other - step))[:5])
            raise InputError(
                f"run {self.name} has no checkpoint at step {step}; the nearest are "
                f"{', '.join(f'step_{near}' for near in nearest)} (it has {_range(steps)})"
            )
        return step

    def _step_of_path(self, path: Path) -> int:
        match = re.fullmatch(r"step_([0-9]{1,15})", path.name)
        inside = os.path.realpath(path.parent) == os.path.realpath(self.path)
        if match is None or not inside:
            raise InputError(f"{path} is not a checkpoint directory of run {self.name}")
        return self.resolve_step(int(match[1]))

    def weights(self, step: int, check: bool = True) -> Mapping[str, Tensor]:
        """Gives the weights of a checkpoint, mapped into memory tensor by tensor when asked for.

        Args:
            step: one of `steps`.
            check: compare the file's hash first; costs one read of the file (about 1 s per GB).

        Raises:
            InputError: no such step, or the checkpoint is truncated or changed.
        """
        manifest = read_manifest(self.path, self.resolve_step(step))
        if check:
            check_file(self.path, manifest, MODEL)
        return LazyWeights(self.path, manifest)

    def checkpoint_hash(self, step: int) -> str:
        """Gives the recorded sha256 of a checkpoint's weights, for example as a cache key."""
        return read_manifest(self.path, self.resolve_step(step)).files[MODEL].sha256

    def model(self, step: int) -> "transformer_lens.HookedTransformer":
        """Builds the model of a checkpoint, on the CPU; nothing is folded or centred.

        Raises:
            InputError: no such step, or the weights are damaged, not finite, or do not fit the
                configuration (missing and unexpected keys are named).
        """
        from mechinterp.model import build_model, load_weights

        weights = self.weights(step)
        try:
            refuse_oversize(self.config.model, step_directory(self.path, step) / MODEL)
            model = build_model(self.config.model, self.task().d_vocab)
            return load_weights(model, weights)
        except InputError as error:
            raise InputError(f"{self.name} step_{step}: {error}") from None

    def metrics(self) -> pd.DataFrame:
        """Gives the metrics, a row for each logged step in order, a column for each quantity.

        A torn last line is left out; of several rows for one step the last one counts.

        Raises:
            InputError: a line in the middle of the file is damaged.
        """
        rows = {row["step"]: row for row in read_rows(self.path / METRICS)}
        ordered = [rows[step] for step in sorted(rows)]
        return pd.DataFrame(ordered) if ordered else pd.DataFrame({"step": []}, dtype="int64")

    def task(self) -> "mechinterp.tasks.base.Task":
        """Gives the task the run was trained on; the same object at each call."""
        return self._task

    @functools.cached_property
    def _task(self) -> "mechinterp.tasks.base.Task":
        from mechinterp.tasks import make_task

        return make_task(self.config.task)


def open_checkpoint(
    ckpt: str | int, run: str | Path | None, root: Path | None = None
) -> tuple[Run, int]:
    """Opens the run and resolves the step that `--ckpt` and `--run` mean together.

    Args:
        ckpt: anything `Run.resolve_step` takes; a path names its run as well.
        run: the run's name or path; with a path in `ckpt`, None or the run it lies in.
        root: the folder given with --root.

    Raises:
        InputError: there is no such run or checkpoint, or the two contradict each other.
    """
    if os.sep not in str(ckpt):
        if run is None:
            raise InputError(f"{ckpt!r} needs a run; give --run, or the path of the checkpoint")
        opened = Run.open(run, root)
        return opened, opened.resolve_step(ckpt)
    path = Path(os.path.abspath(os.path.expanduser(str(ckpt))))
    if not os.path.isfile(path / MANIFEST):
        raise InputError(f"{ckpt} is not a checkpoint directory: it has no {MANIFEST}")
    if not is_run(path.parent):
        raise InputError(f"{ckpt} is not inside a run: {path.parent} has no run.json")
    opened = Run.open(run, root) if run is not None else Run.open(path.parent)
    return opened, opened.resolve_step(str(path))


def _range(steps: list[int]) -> str:
    return f"{len(steps)} checkpoints from step {steps[0]} to {steps[-1]}"
