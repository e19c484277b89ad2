"""Claims about the entropic force: noise added to training, and noise taken out of it."""

import numpy as np
import pandas as pd

from analyses.ledger.claim import Claim, Measured, Part
from analyses.ledger.criteria import above, below
from analyses.ledger.noise_claims import NOISE, batch_arms, said
from analyses.ledger.plateau_claims import CONTROLS
from analyses.ledger.seeds import per_setting, scale_of
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.waiting import pair_seeds, ratio, waits

NOISES = {"gradient_noise": NOISE, "label_noise": CONTROLS}
"""Kinds of added noise, and the study that has them."""


def added(store: EvidenceStore) -> Measured:
    """Does noise that is added to the gradient, or to the labels, delay the snap?"""
    arms = [arm for one in NOISES.items() if (arm := _strongest(store, *one)) is not None]
    if not arms:
        raise NoEvidence("no run with gradient_noise or label_noise beside an ordinary one")
    found = [ratio(noisy, base) for _, base, noisy in arms]
    parts = tuple(
        Part(f"{name.replace('_', ' ')} delays tau by more than 10 %", above(one.found, 1.1),
             said(one))
        for (name, _, _), one in zip(arms, found, strict=True)
    )  # fmt: skip
    shown_arms = pd.concat(
        table.assign(kind=name) for name, base, noisy in arms for table in (base, noisy)
    )
    return Measured(
        parts,
        found[0].found,
        "times as long",
        pair_seeds(*(table for _, *both in arms for table in both)),
        scale_of(shown_arms),
        per_setting(shown_arms, "time", ("kind", "arm"), geometric=True),
        note="the repository's own label-noise runs (cosine schedule) escape sooner at 5, 10 and "
        "20 % than without",
    )


def _strongest(
    store: EvidenceStore, name: str, study: str
) -> tuple[str, pd.DataFrame, pd.DataFrame] | None:
    """Ordinary runs, and those with most of one kind of noise and nothing else; None without."""
    try:
        table = waits(store, study)
    except NoEvidence:
        return None
    noisy = table[table["arm"].str.fullmatch(rf"{name} [^,]+")]
    base = table[table["arm"] == "base"]
    if noisy.empty or base.empty:
        return None
    noisy = noisy[noisy[name] == noisy[name].max()]
    # Added noise is compared at the same rate and batch size.
    same = [n for n in ("lr", "batch", "k", "n_b") if n in table]
    for setting in same:
        base = base[base[setting] == noisy[setting].iloc[0]]
    return None if base.empty else (name, pd.DataFrame(base), pd.DataFrame(noisy))


def removed(store: EvidenceStore) -> Measured:
    """Does taking the noise out of the gradient hasten the snap?"""
    table = batch_arms(store)
    full = pd.DataFrame(table[table["full"]])
    if full.empty:
        raise NoEvidence("no run whose batch is all of the data among the runs")
    noisy = pd.DataFrame(table[~table["full"]])
    usual = noisy[noisy["batch"] == min(noisy["batch"].unique(), key=lambda b: abs(np.log(b / 64)))]
    large = noisy[noisy["batch"] == noisy["batch"].max()]
    no_noise, less = ratio(full, usual), ratio(large, usual)
    parts = (
        Part("noise-free full batches need at least 10 % fewer steps", below(no_noise.found, 0.9),
             said(no_noise)),
        Part("so does the largest batch", below(less.found, 0.9), said(less)),
    )  # fmt: skip
    return Measured(
        parts,
        no_noise.found,
        "times as long",
        pair_seeds(full, usual, large),
        scale_of(table),
        per_setting(table, "time", ("batch",), geometric=True),
        note=f"in steps, against batch {usual['batch'].iloc[0]:g} at the same learning rate",
    )


CLAIMS = (
    Claim(
        "noise-added",
        "marginals",
        "Gradient noise is an entropic force: adding some delays the snap.",
        "direction only",
        "abstract; an earlier draft's label-noise runs contradict it",
        "tau longer by more than 10 % with the strongest added noise of each kind",
        (NOISE, CONTROLS),
        added,
    ),
    Claim(
        "noise-removed",
        "marginals",
        "Removing the noise speeds the snap up.",
        "direction only",
        "implied by the entropic force; the paper has no noise-free run",
        "at least 10 % fewer steps with full batches and with the largest batch than with 64",
        (NOISE,),
        removed,
    ),
)
