"""What a run holds, whether what is on disk is whole, and what was lost if anything."""

from dataclasses import dataclass, field
from pathlib import Path

from circuits.errors import InputError
from mechinterp.runs import Run
from mechinterp.runs.__main__ import main
from mechinterp.runs.verifying import problems_of


def content(run: Path) -> dict[str, bytes]:
    """Every file of a run, except for run.json, whose time of creation is its own."""
    return {
        str(file.relative_to(run)): file.read_bytes()
        for file in sorted(run.rglob("*"))
        if file.is_file() and file.name != "run.json"
    }


def why_unreadable(run: Path) -> list[str]:
    """Whatever is wrong with a run: hashes, what cannot be opened, rows out of order."""
    try:
        opened = Run.open(run)
        rows = list(opened.metrics()["step"])
        short = [step for step in opened.steps if len(opened.weights(step)) < 5]
    except InputError as error:
        return [str(error)]
    # A row is written before its checkpoint, so no checkpoint is there without any row.
    disordered = rows != sorted(set(rows)) or (opened.steps and not rows)
    return problems_of(run) + ["rows"] * bool(disordered) + [f"step_{step}" for step in short]


def strays(folder: Path) -> list[Path]:
    """Every unfinished or forgotten file below a folder, whoever left it."""
    return [p for p in folder.rglob("*") if p.name.startswith(".") or p.suffix == ".tmp"]


def repair(folder: Path, capsys) -> int:
    """Lets the command repair all runs of a folder; gives how much it removed."""
    folder.mkdir(exist_ok=True)
    assert main(["verify", "--root", str(folder), "--repair"]) == 0
    return capsys.readouterr().out.count("removed")


@dataclass
class Toll:
    """What kills did to runs; `steps` remembers what each of them had."""

    kills: int = 0
    unreadable: int = 0
    lost: int = 0
    identical: int = 0
    steps: dict[Path, set[int]] = field(default_factory=dict)

    def look(self, run: Path) -> None:
        """Looks at a run after a kill: what was there before is still there, and readable."""
        before = self.steps.get(run)
        if run.exists():
            self.unreadable += bool(why_unreadable(run))
            self.steps[run] = set(Run.open(run).steps)
        self.lost += before is not None and not before <= self.steps.get(run, set())

    def numbers(self) -> dict[str, int]:
        """What is printed."""
        return {
            "sent": self.kills,
            "runs_resumed_bit_identical": self.identical,
            "unreadable": self.unreadable,
            "lost": self.lost,
        }
