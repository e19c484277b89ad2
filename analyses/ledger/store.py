"""Evidence on disk: a folder for each study, with tables of its runs."""

import functools
import json
from pathlib import Path
from typing import Any

import pandas as pd

from circuits.errors import InputError

MADE = "made.json"
RUNS = "runs"

SEEDS = ("init_seed", "data_seed", "mapping_seed", "chain_seed")
"""Settings that tell two runs of the same setting apart."""


class NoEvidence(Exception):
    """There is no evidence, or not enough of it, for a claim: says what is lacking."""


class EvidenceStore:
    """Reads the tables of studies; each is read once."""

    def __init__(self, folder: Path) -> None:
        """Takes the folder that holds one folder for each study.

        Raises:
            InputError: there is no such folder.
        """
        if not folder.is_dir():
            raise InputError(
                f"{folder} is no folder of evidence; give one that holds a folder for each study, "
                "as `python -m analyses evidence` makes them"
            )
        self.folder = folder
        self._table = functools.cache(self._read)
        self._runs = functools.cache(self._read_runs)

    def table(self, study: str, name: str) -> pd.DataFrame:
        """Gives a table of a study; its first column is `run`.

        Raises:
            NoEvidence: it is not there, or has no rows.
            InputError: it cannot be read.
        """
        return self._table(study, name).copy()

    def runs(self, study: str) -> pd.DataFrame:
        """Gives one row a run with all its settings, the study's constant ones included.

        Besides the columns of runs.csv: `seed`, its seeds as text; `rank`, the number of its seeds
        among all that the study has, so that equal ranks mean equal seeds in any two settings.

        Raises:
            NoEvidence: the study is not there.
        """
        return self._runs(study).copy()

    def joined(self, study: str, name: str) -> pd.DataFrame:
        """Gives a table with the settings of each row's run beside it; runs without rows drop out.

        Raises:
            NoEvidence: the study or the table is not there.
            InputError: a row is of a run that the study does not have.
        """
        runs, table = self.runs(study), self.table(study, name)
        unknown = set(table["run"]) - set(runs["run"])
        if unknown:
            raise InputError(
                f"{study}/{name} has rows of {sorted(map(str, unknown))[0]}, which is not in its "
                f"{RUNS}: gather the study anew"
            )
        extra = [column for column in runs if column == "run" or column not in table]
        return table.merge(runs[extra], on="run", how="left")

    def made(self, study: str) -> dict[str, Any]:
        """Says how a study was made; empty if nothing says so."""
        path = self.folder / study / MADE
        if not path.is_file():
            return {}
        try:
            body = json.loads(path.read_text())
        except ValueError:
            raise InputError(f"{path} is not valid JSON: gather the study anew") from None
        if not isinstance(body, dict):
            raise InputError(f"{path} holds no JSON object: gather the study anew")
        return body

    def _read(self, study: str, name: str) -> pd.DataFrame:
        found = [
            path
            for ending in (".csv", ".csv.gz")
            if (path := self.folder / study / f"{name}{ending}").is_file()
        ]
        if not found:
            tables = list((self.folder / study).glob("*.csv*"))
            what = f"has no table {name}" if tables else "has not been run"
            raise NoEvidence(f"the study {study} {what}")
        try:
            table = pd.read_csv(found[0])
        except (ValueError, OSError) as error:
            raise InputError(f"{found[0]} cannot be read: {error}") from None
        if "run" not in table:
            raise InputError(f"{found[0]} has no column run: gather the study anew")
        if table.empty:
            raise NoEvidence(f"the study {study} has no rows in {name}")
        return table

    def _read_runs(self, study: str) -> pd.DataFrame:
        runs, made = self.table(study, RUNS), self.made(study)
        for name, value in made.get("settings", {}).items():
            if name not in runs:
                runs[name] = value if isinstance(value, int | float | str | bool) else str(value)
        seeds = [name for name in SEEDS if name in runs]
        runs["seed"] = [", ".join(f"{n} {row[n]}" for n in seeds) for _, row in runs.iterrows()]
        runs = runs.sort_values([*seeds, "run"], kind="stable").reset_index(drop=True)
        # By seeds, not by place within a setting: a run may be missing from some setting.
        alike = runs.groupby(seeds, dropna=False, sort=True).ngroup() if seeds else range(len(runs))
        return runs.assign(rank=alike)
