"""The one writer of a run: what a trainer calls to log, to save and to take up again."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor

from circuits.errors import InputError
from mechinterp.config import RunConfig
from mechinterp.runs.atomic import new_directory, plain_errors, remove_directory
from mechinterp.runs.checkpoint import read_whole, write_checkpoint
from mechinterp.runs.locate import is_run
from mechinterp.runs.lock import RunLock
from mechinterp.runs.manifest import MODEL, RESUME, Seal, read_manifest, step_directory, steps_of
from mechinterp.runs.metrics_log import METRICS, MetricsLog
from mechinterp.runs.opening import check_same, create, take_up
from mechinterp.runs.tensor_bytes import encode

KEPT_RESUME = 2
"""Checkpoints that keep what resuming needs: should the newest be damaged, one is left."""


class RunWriter:
    """Writes a run; use it as a context manager, one process at a time.

    Killed at any instant, the run stays readable and can be taken up again: a checkpoint is
    complete or absent, and a half-written row of metrics is dropped. A checkpoint is copied when
    `save` is called and written by a thread of its own, one at a time and in order, so training
    does not wait for the disk.
    """

    def __init__(self, path: Path, lock: RunLock, log: MetricsLog) -> None:
        self.path = path
        self.notes: list[str] = []
        """What the user should know about a resumed run, a line each."""
        self._lock = lock
        self._log = log
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._resumable = [
            step for step in steps_of(path) if (step_directory(path, step) / RESUME).exists()
        ]

    @classmethod
    def open(
        cls, path: Path, config: RunConfig, n_params: int, resume: bool, command: str
    ) -> "RunWriter":
        """Makes a new run, or takes up an existing one.

        With `resume`, a run that does not exist yet is started: a job that was killed before its
        first write is restarted by the same command as any other. `training.steps` may be raised
        to train a finished run further, unless the learning rate depends on it (cosine).

        Args:
            path: the run's directory.
            config: everything that decides the run.
            n_params: number of trained parameters.
            resume: whether an existing run is continued.
            command: the command line, recorded in run.json.

        Raises:
            InputError: the run exists and `resume` is not set, it was made with another
                configuration (the fields are named), another process writes to it, or the disk
                refuses. Nothing is changed then.
        """
        path = Path(os.path.abspath(path))
        if not is_run(path):
            lock = create(path, config, n_params, command)
        elif resume:
            # Before the lock is taken, so that a refusal leaves no trace; and again afterwards.
            check_same(path, config, n_params)
            lock = RunLock.acquire(path)
        else:
            raise InputError(
                f"run {path.name} exists already in {path.parent}; continue it with --resume, or "
                "choose another --run"
            )
        try:
            notes = take_up(path, config, n_params, command)
            writer = cls(path, lock, MetricsLog(path / METRICS))
        except BaseException:
            lock.release(path)
            raise
        writer.notes += notes
        return writer

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for the last checkpoint, closes the files and gives the lock back.

        Raises:
            InputError: the last checkpoint could not be written.
        """
        try:
            self.settle()
        finally:
            self._disk.shutdown()
            self._log.close()
            self._lock.release(self.path)

    def settle(self) -> None:
        """Waits until every checkpoint is complete on disk.

        Raises:
            InputError: the newest one could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def resume_point(self) -> tuple[int, dict[str, Tensor], dict[str, Tensor]] | None:
        """Gives the newest intact checkpoint that can be continued from.

        A damaged one is passed over, with a line in `notes`.

        Returns:
            Its step, weights and resume state, exactly as saved; None for a run that has no
            checkpoint at all, which starts from the beginning.

        Raises:
            InputError: there are checkpoints, but none can be continued from.
        """
        steps = steps_of(self.path)
        reasons: list[str] = []
        for step in reversed(steps):
            try:
                manifest = read_manifest(self.path, step)
                if step not in self._resumable or RESUME not in manifest.files:
                    raise InputError(f"it has no {RESUME}")
                weights = read_whole(self.path, manifest, MODEL)
                state = read_whole(self.path, manifest, RESUME)
            except InputError as error:
                reasons.append(f"step_{step}: {error}")
                continue
            self.notes += [f"passed over {reason}" for reason in reasons]
            return step, weights, state
        if not steps:
            return None
        raise InputError(
            f"run {self.path.name} cannot be resumed from any of its checkpoints ({reasons[0]})"
        )

    def start_from(self, step: int) -> None:
        """Drops every row of metrics and every checkpoint of later steps.

        Args:
            step: the step that training goes on from; -1 for the very beginning.

        Raises:
            InputError: the disk refuses.
        """
        self.settle()
        self._lock.check(self.path)
        # Newest first: whatever instant this is killed at, what is left is a shorter run.
        for later in reversed(steps_of(self.path)):
            if later > step:
                remove_directory(step_directory(self.path, later))
        self._resumable = [kept for kept in self._resumable if kept <= step]
        self._spare_disk()
        self._log.drop_after(step)

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends a row of metrics; it survives a kill when this returns.

        Log a step before saving it: a checkpoint's hash covers the rows before it.

        Raises:
            InputError: the row has no step, or the disk refuses.
        """
        self._log.append(row)

    def save(
        self, step: int, weights: Mapping[str, Tensor], resume_state: Mapping[str, Tensor]
    ) -> None:
        """Writes a checkpoint, from the tensors as they are now.

        Returns when they are copied, and the checkpoint before this one is complete on disk. Only
        the newest `KEPT_RESUME` checkpoints keep their resume state.

        Args:
            step: updates made so far.
            weights: the trained tensors by TransformerLens name.
            resume_state: what resuming needs besides the weights, as tensors of any names.

        Raises:
            InputError: the disk refused this checkpoint or the one before, or the run was deleted;
                earlier checkpoints are safe.
        """
        self.settle()
        self._lock.check(self.path)
        files = {MODEL: encode(weights), RESUME: encode(resume_state)}
        self._pending = self._disk.submit(self._write, step, files, self._log.seal())

    def _write(self, step: int, files: dict[str, bytes], metrics: Seal) -> None:
        target = step_directory(self.path, step)
        self._log.sync()
        if target.exists():
            remove_directory(target)
        with new_directory(target) as directory:
            write_checkpoint(directory, step, files, metrics)
        self._resumable = sorted({*self._resumable, step})
        self._spare_disk()

    def _spare_disk(self) -> None:
        while len(self._resumable) > KEPT_RESUME:
            spare = step_directory(self.path, self._resumable.pop(0)) / RESUME
            with plain_errors("remove", spare):
                spare.unlink(missing_ok=True)
