"""All planted studies together."""

from collections.abc import Iterable
from functools import cache

from tests.analyses.ledger import planted, planted_chains
from tests.analyses.ledger.planted import World

STUDIES = {
    "marginals-size": planted.size,
    "marginals-heads": planted.heads,
    "marginals-noise": planted.noise,
    "marginals-controls": planted.controls,
    "marginals-reverse": planted.reverse,
    "markov-phases": planted_chains.chains,
    "markov-kinetics": planted_chains.kinetics,
    "minimal-models": planted_chains.minimal,
}


def reproduced(studies: Iterable[str] = tuple(STUDIES)) -> World:
    """Evidence in which every claim of both papers holds, to change as one likes."""
    return {
        study: {name: table.copy() for name, table in _made(study).items()} for study in studies
    }


@cache
def _made(study: str):
    return STUDIES[study]()
