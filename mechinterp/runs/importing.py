"""Makes a run of a directory of state dicts, of HookedTransformer or of the native bridge."""

import re
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.errors import InputError
from mechinterp.config import RunConfig, from_json
from mechinterp.model import BUFFERS, build_model, load_weights, weights_of
from mechinterp.runs.atomic import new_directory, plain_errors, write_durably
from mechinterp.runs.bridge_weights import from_bridge, is_bridge_state
from mechinterp.runs.checkpoint import write_checkpoint
from mechinterp.runs.header import layout
from mechinterp.runs.locate import RECORD
from mechinterp.runs.manifest import MODEL, step_directory
from mechinterp.runs.oversize import refuse_larger
from mechinterp.runs.pickled_weights import read_state_dict
from mechinterp.runs.record import new_record, record_bytes
from mechinterp.runs.sealed_json import read_json
from mechinterp.runs.tensor_bytes import encode
from mechinterp.tasks import make_task

_NESTED = re.compile(r"step_([0-9]{1,15})")
_FLAT = re.compile(r"model_step_([0-9]{1,15})\.(?:pt|safetensors)")
_NAMES = ("model.safetensors", "model.pt")


def find_state_dicts(source: Path) -> dict[int, Path]:
    """Finds `step_004000/model.pt` and `model_step_0004000.pt`, or .safetensors, in a directory.

    Returns:
        Step to file, in order of the steps.

    Raises:
        InputError: there is none, or two of them are for the same step.
    """
    with plain_errors("read", source):
        entries = sorted(source.iterdir())
    found: dict[int, Path] = {}
    for entry in entries:
        nested, flat = _NESTED.fullmatch(entry.name), _FLAT.fullmatch(entry.name)
        match = nested or flat
        for path in [entry / name for name in _NAMES] if nested else [entry]:
            if match is None or not path.is_file():
                continue
            step = int(match[1])
            if step in found:
                raise InputError(f"{found[step]} and {path} are both for step {step}; remove one")
            found[step] = path
    if not found:
        raise InputError(
            f"{source} holds no checkpoints; looked for step_004000/model.pt and "
            "model_step_0004000.pt, or .safetensors"
        )
    return dict(sorted(found.items()))


def import_run(source: Path, config_file: Path, target: Path, command: str) -> list[int]:
    """Makes a run of a directory of state dicts; constant buffers such as masks are left out.

    Every state dict is loaded into the model that the configuration describes, so what was
    imported can be opened. The run appears when all of it is written.

    Args:
        source: directory with the state dicts.
        config_file: a run's configuration as JSON, as `runs show --config` prints it.
        target: directory of the new run; it must not exist.
        command: recorded in run.json.

    Returns:
        The imported steps.

    Raises:
        InputError: a file is malformed, does not fit the configuration or holds values that are
            not finite, or the target exists. Nothing is left behind.
    """
    config = _read_config(config_file)
    if target.exists():
        raise InputError(f"{target} exists already; choose another --run")
    found = find_state_dicts(source)
    # Ahead of the model, which a wrong configuration could make of any size.
    _refuse_larger(config, next(iter(found.values())))
    model = build_model(config.model, make_task(config.task).d_vocab)
    n_params = sum(parameter.numel() for parameter in model.parameters())
    record = new_record(config, n_params, command, torch.get_num_threads())
    with plain_errors("create", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with new_directory(target) as run:
        for step, path in found.items():
            state = _read_tensors(path)
            try:
                weights = _as_trained(state, model)
                load_weights(model, weights)
            except InputError as error:
                raise InputError(f"{path} cannot be imported: {error}") from None
            with new_directory(step_directory(run, step)) as directory:
                write_checkpoint(directory, step, {MODEL: encode(weights)}, metrics=None)
        write_durably(run / RECORD, record_bytes(record))
    return list(found)


def _refuse_larger(config: RunConfig, path: Path) -> None:
    stored = sum(tensor.numel() for tensor in _read_tensors(path).values())
    try:
        refuse_larger(config.model, stored)
    except InputError as error:
        raise InputError(f"{path} cannot be imported: {error}") from None


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads a file of either format; nothing in it is run or trusted."""
    if path.suffix == ".pt":
        return read_state_dict(path)
    layout(path)
    with plain_errors("read", path):
        data = path.read_bytes()
    try:
        return safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise InputError(f"{path} is not a safetensors file: {error}") from None


def _as_trained(state: dict[str, Tensor], model: HookedTransformer) -> dict[str, Tensor]:
    """The trained tensors by HookedTransformer's names, constant buffers left out."""
    if is_bridge_state(state):
        state = from_bridge(state, weights_of(model), model.cfg)
    return {
        name: tensor for name, tensor in state.items() if name.rpartition(".")[2] not in BUFFERS
    }


def _read_config(path: Path) -> RunConfig:
    body = read_json(path)
    # run.json of another run will do: it holds the configuration under one name.
    try:
        return from_json(body.get("config", body))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
