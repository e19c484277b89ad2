"""Where a run's metrics can go besides its own log: TensorBoard files, or Weights & Biases."""

from pathlib import Path
from typing import Any, Literal

from circuits.errors import InputError
from mechinterp.config import RunConfig, to_json
from mechinterp.training_loop import Row

Sink = Literal["tensorboard", "wandb"]


class TensorBoard:
    """Writes event files to `tensorboard/` in the run's directory."""

    def __init__(self, config: RunConfig, path: Path) -> None:
        """Finds out whether TensorBoard is there.

        Raises:
            InputError: it is not.
        """
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self._kind, self._path, self._writer = SummaryWriter, path / "tensorboard", None

    def __call__(self, step: int, row: Row) -> None:
        """Takes a row of metrics; the run's directory exists by then."""
        self._writer = self._writer or self._kind(str(self._path))
        for name, value in _numbers(row).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Waits until everything is written."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """Sends to the project `mechinterp`; with WANDB_MODE=offline, to a folder beside the run."""

    def __init__(self, config: RunConfig, path: Path) -> None:
        """Finds out whether wandb is there.

        Raises:
            InputError: it is not.
        """
        try:
            import wandb
        except ImportError:
            raise _missing("wandb") from None
        self._wandb, self._config, self._path, self._run = wandb, config, path, None

    def __call__(self, step: int, row: Row) -> None:
        """Takes a row of metrics."""
        if self._run is None:
            self._run = self._wandb.init(
                project="mechinterp",
                name=self._path.name,
                dir=self._path.parent,
                config=to_json(self._config),
                reinit="finish_previous",
                settings=self._wandb.Settings(silent=True, console="off"),
            )
        self._run.log(_numbers(row), step=step)

    def close(self) -> None:
        """Waits until everything is sent."""
        if self._run is not None:
            self._run.finish()


def make_sink(sink: Sink, config: RunConfig, path: Path) -> TensorBoard | WeightsAndBiases:
    """Makes a sink that is called with each row of metrics as it is measured.

    Rows that a resumed run measures again are sent again; the run's own log holds each once.

    Args:
        sink: which.
        config: sent along, where the sink has a place for it.
        path: the run's directory, which need not exist before the first row.

    Raises:
        InputError: the extra is not installed.
    """
    return {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}[sink](config, path)


def _numbers(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "step"}


def _missing(extra: str) -> InputError:
    return InputError(
        f"--log-to {extra} needs a package that is not installed: pip install -e '.[{extra}]'"
    )
