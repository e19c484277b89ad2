"""Which commands make the evidence of a study, at our scale and at the papers'."""

from typing import NamedTuple


class Commands(NamedTuple):
    """How a study is made."""

    here: str
    """On a machine with two cores."""
    at_scale: str
    """At the paper's own scale, which wants a GPU."""


EVIDENCE = "checkpoints/evidence"

PAPER_SCALE = f"{EVIDENCE}/paper-scale"

MINIMAL = (
    "python -m analyses symmetric-model --json symmetric-model.json; "
    "python -m analyses pool-model --seeds 0 1 2 --json pool-model.json; "
    "python -m analyses linear-net --json linear-net.json; "
    "python -m analyses evidence --study minimal-models --answers symmetric-model.json "
    "pool-model.json linear-net.json"
)


def commands_of(study: str) -> Commands:
    """Gives the commands that make a study's evidence."""
    if study == "minimal-models":
        return Commands(MINIMAL, MINIMAL)
    return Commands(
        f"python -m mechinterp.sweep {EVIDENCE}/{study}/spec.toml; "
        f"python -m analyses evidence --study {study} --sweep FOLDER",
        f"python -m mechinterp.sweep {PAPER_SCALE}/{study}.toml --engine ray",
    )
