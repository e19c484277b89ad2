"""From a sweep's description to its runs, each with a name that a change elsewhere leaves alone."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuits.errors import InputError
from mechinterp.config import RunConfig, from_json, to_json
from mechinterp.runs.atomic import plain_errors
from mechinterp.stopping import Stopper
from mechinterp.sweep.spec import Settings, Spec, with_settings

MOST = 10_000
"""Runs that a sweep may have; more is a slip in its description."""

_UNFIT = re.compile(r"[^A-Za-z0-9._+=,@-]")


@dataclass(frozen=True)
class Planned:
    """One run of a sweep.

    Attributes:
        name: what differs, and the hash of the whole configuration.
        config: everything that decides the run.
        settings: what the sweep varies, by dotted field, seeds included.
    """

    name: str
    config: RunConfig
    settings: Settings

    @property
    def key(self) -> str:
        """The hash at the end of the name, which alone says whether a run is this one."""
        return self.name.rsplit("-", 1)[-1]


def planned(spec: Spec) -> tuple[Planned, ...]:
    """Gives every run of a sweep once, in the order of its description.

    Raises:
        InputError: a value does not fit its field, a combination is refused, or there are none or
            too many.
    """
    runs: dict[str, Planned] = {}
    for point in _points(spec):
        for seed in spec.seeds.values:
            settings = point | dict.fromkeys(spec.seeds.fields, seed)
            config = from_json(with_settings(spec.base, settings))
            Stopper(spec.stop, config.task)  # refuses a rule that the task cannot follow
            run = Planned(_name(point, spec, seed, config), config, settings)
            runs.setdefault(run.key, run)
            if len(runs) > MOST:
                raise InputError(f"the sweep has more than {MOST} runs; split it")
    if not runs:
        raise InputError("the sweep has no runs; a list of values is empty")
    return tuple(runs.values())


def _points(spec: Spec) -> Iterator[Settings]:
    columns = [[{name: value} for value in values] for name, values in spec.grid.items()]
    # A description that spells out its points has no other point, unless it asks for some.
    if spec.grid or spec.zips or not spec.points:
        for combination in itertools.product(*columns, *spec.zips):
            yield {name: value for settings in combination for name, value in settings.items()}
    yield from spec.points


def _name(point: Settings, spec: Spec, seed: int, config: RunConfig) -> str:
    parts = [f"{name.split('.', 1)[-1]}{_shown(value)}" for name, value in point.items()]
    if spec.seeds.fields:
        parts.append(f"s{seed}")
    text = json.dumps(to_json(config), sort_keys=True).encode()
    readable = _UNFIT.sub("", "-".join(parts) or spec.name)[:100]
    return f"{readable}-{hashlib.sha256(text).hexdigest()[:10]}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def directory_of(folder: Path, run: Planned) -> Path:
    """Gives the directory of a run: that of an earlier one with the same configuration, if any.

    A description that begins to vary another field gives its runs longer names; those that exist
    keep theirs.
    """
    return directories_of(folder, (run,))[run.key]


def directories_of(folder: Path, runs: tuple[Planned, ...]) -> dict[str, Path]:
    """Gives the directories of many runs by key, from one look at the folder."""
    there: dict[str, str] = {}
    if folder.is_dir():
        with plain_errors("read", folder):
            names = [entry.name for entry in folder.iterdir()]
        # What a kill left of a run that was being made has a name that begins with a dot.
        there = {name.rsplit("-", 1)[-1]: name for name in names if not name.startswith(".")}
    return {run.key: folder / there.get(run.key, run.name) for run in runs}
