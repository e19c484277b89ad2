"""A sweep's description: a TOML file in, one frozen value out."""

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from circuits.errors import InputError, near_matches
from mechinterp.config import (
    MARKOV_MODEL,
    MARKOV_TRAINING,
    TASK_CONFIGS,
    MarkovChainsConfig,
    RunConfig,
    to_json,
)
from mechinterp.runs.atomic import plain_errors
from mechinterp.runs.locate import check_name
from mechinterp.stopping import StopRule

Keep = Literal["all", "window", "metrics"]
Settings = dict[str, Any]
"""Values by dotted field, such as `task.k`."""

LIMIT = 2**20
"""No description of a sweep is larger than this many bytes."""

_SECTIONS = ("name", "base", "grid", "zip", "list", "seeds", "stop", "keep", "after")


@dataclass(frozen=True)
class Seeds:
    """Which seeds every point is run with, and the fields that each of them is given to."""

    values: tuple[int, ...] = (0,)
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spec:
    """What a sweep is made of; `planning.planned` turns it into runs.

    Attributes:
        name: of the sweep, and of its folder.
        base: the configuration of every run, as JSON, but for what varies.
        grid: values of each field; every combination is a point.
        zips: fields that vary together, a list of settings for each; combined with the grid.
        points: further points, spelled out.
        seeds: every point is run once for each.
        stop: what ends a run early.
        keep: which checkpoints stay once a run is complete.
        after: module and arguments to run when a run is complete; `{run}` is its directory.
    """

    name: str
    base: dict[str, Any]
    grid: dict[str, tuple[Any, ...]]
    zips: tuple[tuple[Settings, ...], ...]
    points: tuple[Settings, ...]
    seeds: Seeds
    stop: StopRule
    keep: Keep
    after: tuple[str, ...]


def read_spec(path: Path) -> Spec:
    """Reads a sweep's description.

    Args:
        path: a TOML file; docs/how-to/sweep.md shows one.

    Raises:
        InputError: it cannot be read, is no TOML, or has a part that does not belong; it is named.
    """
    with plain_errors("read", path), open(path, "rb") as file:
        data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise InputError(f"{path} is larger than {LIMIT // 2**20} MiB; it is no sweep")
    try:
        body = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or str(error).splitlines()[0][:120]
        raise InputError(f"{path} is not valid TOML: {reason}") from None
    try:
        return _spec(body, path.stem)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _spec(body: dict[str, Any], stem: str) -> Spec:
    _refuse_unknown("the description", body, _SECTIONS)
    keep = body.get("keep", "all")
    if keep not in get_args(Keep):
        raise InputError(f"keep is {keep!r}; allowed: {', '.join(get_args(Keep))}")
    return Spec(
        name=check_name(_typed("name", body.get("name", stem), str)),
        base=_base(_typed("base", body.get("base", {}), dict)),
        grid={k: _values(k, v) for k, v in _typed("grid", body.get("grid", {}), dict).items()},
        zips=tuple(_zipped(group) for group in _tables("zip", body)),
        points=tuple(_flat(point) for point in _tables("list", body)),
        seeds=_seeds(_typed("seeds", body.get("seeds", {}), dict)),
        stop=_stop(_typed("stop", body.get("stop", {}), dict)),
        keep=keep,
        after=tuple(_typed("after", line, str) for line in _values("after", body.get("after", []))),
    )


def _base(body: dict[str, Any]) -> dict[str, Any]:
    """Fills a partial configuration up with what the training command has by default."""
    task = _typed("base.task", body.get("task", {}), dict)
    name = task.get("name", "marginals")
    if not isinstance(name, str) or name not in TASK_CONFIGS:
        raise InputError(f"base.task.name is {name!r}; allowed: {', '.join(TASK_CONFIGS)}")
    config = RunConfig(TASK_CONFIGS[name]())
    if isinstance(config.task, MarkovChainsConfig):
        config = dataclasses.replace(config, model=MARKOV_MODEL, training=MARKOV_TRAINING)
    return with_settings(to_json(config), _flat(body, "base."))


def with_settings(body: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Gives a configuration as JSON with some fields replaced; their values are not checked here.

    Raises:
        InputError: there is no such field; near ones are named.
    """
    new = {section: dict(values) for section, values in body.items()}
    fields = [f"{section}.{field}" for section, values in body.items() for field in values]
    for name, value in settings.items():
        if name not in fields:
            raise InputError(f"there is no field {name!r}; near ones: {near_matches(name, fields)}")
        section, field = name.split(".", 1)
        new[section][field] = value
    return new


def _flat(table: object, where: str = "list.") -> Settings:
    """Turns {task: {k: 5}} and {"task.k": 5} alike into {"task.k": 5}."""
    flat: Settings = {}
    for section, values in _typed(where.rstrip("."), table, dict).items():
        if isinstance(values, dict):
            flat |= {f"{section}.{field}": value for field, value in values.items()}
        else:
            flat[section] = values
    return flat


def _zipped(group: dict[str, Any]) -> tuple[Settings, ...]:
    columns = {name: _values(name, values) for name, values in _flat(group, "zip.").items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise InputError(f"zip has lists of different lengths, {lengths}; they vary together")
    return tuple(
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    )


def _seeds(body: dict[str, Any]) -> Seeds:
    _refuse_unknown("seeds", body, ("values", "fields"))
    values = _values("seeds.values", body.get("values", [0]))
    fields = _values("seeds.fields", body.get("fields", []))
    if len(values) > 1 and not fields:
        raise InputError(
            "seeds.values has several seeds and seeds.fields says not which fields they are for; "
            'give for example fields = ["model.init_seed", "training.data_seed"]'
        )
    if not values:
        raise InputError("seeds.values is empty; give at least one seed")
    return Seeds(
        tuple(_typed("a seed", value, int) for value in values),
        tuple(_typed("seeds.fields", field, str) for field in fields),
    )


def _stop(body: dict[str, Any]) -> StopRule:
    _refuse_unknown("stop", body, ("converged", "exploded"))
    converged = _typed("stop.converged", body.get("converged", 0), int)
    exploded = body.get("exploded", 0.0)
    if isinstance(exploded, bool) or not isinstance(exploded, int | float):
        raise InputError(f"stop.exploded is {exploded!r}; it has to be a number")
    return StopRule(converged, float(exploded))


def _tables(name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    tables = body.get(name, [])
    if not isinstance(tables, list):
        raise InputError(f"{name} is a {type(tables).__name__}; write it as [[{name}]]")
    return [_typed(name, table, dict) for table in tables]


def _values(name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, list):
        raise InputError(f"{name} is {str(values)[:60]!r}; it has to be a list")
    return tuple(values)


def _typed(name: str, value: object, kind: type) -> Any:
    if type(value) is not kind:
        raise InputError(f"{name} is {str(value)[:60]!r}; it has to be of type {kind.__name__}")
    return value


def _refuse_unknown(where: str, body: dict[str, Any], allowed: tuple[str, ...]) -> None:
    for name in body:
        if name not in allowed:
            raise InputError(
                f"{where} has the unknown part {name!r}; allowed: {', '.join(allowed)}"
            )
