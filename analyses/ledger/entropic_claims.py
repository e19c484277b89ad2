"""Claims about the entropic force: noise added to training, and noise taken out of it."""

import math

import numpy as np
import pandas as pd

from analyses.ledger.claim import Claim, Measured, Part
from analyses.ledger.criteria import above, below, number
from analyses.ledger.noise_claims import NOISE, batch_arms, said
from analyses.ledger.plateau_claims import CONTROLS
from analyses.ledger.seeds import per_setting, scale_of
from analyses.ledger.store import EvidenceStore, NoEvidence
from analyses.ledger.waiting import pair_seeds, ratio, waits

ALIKE = 0.1
"""Relative difference up to which a learning rate stands for another."""

NOISES = {"gradient_noise": NOISE, "label_noise": CONTROLS}
"""Kinds of added noise, and the study that has them."""


def added(store: EvidenceStore) -> Measured:
    """Does noise that is added to the gradient, or to the labels, delay the snap?"""
    arms = [arm for one in NOISES.items() if (arm := _strongest(store, *one)) is not None]
    if not arms:
        raise NoEvidence("no run with gradient_noise or label_noise beside an ordinary one")
    found = [ratio(noisy, base) for _, base, noisy in arms]
    parts = tuple(
        Part(f"{name.replace('_', ' ')} delays tau by more than 20 %", above(one.found, 1.2),
             said(one))
        for (name, _, _), one in zip(arms, found, strict=True)
    )  # fmt: skip
    parts += _beyond_adam(store, arms)
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
        axis="waiting time (steps)",
        note="the repository's own label-noise runs (cosine schedule) escape sooner at 5, 10 and "
        "20 % than without",
    )


def _beyond_adam(
    store: EvidenceStore, arms: list[tuple[str, pd.DataFrame, pd.DataFrame]]
) -> tuple[Part, ...]:
    """Whether noise delays more than the step that it takes from the signal under Adam.

    Adam divides by the root of the mean square, so noise of r times the gradient's norm makes the
    signal's step sqrt(1 + r^2) times as short, as a lower learning rate would.
    """
    for name, base, noisy in arms:
        if name == "gradient_noise":
            table = waits(store, NOISE)
            rate = base["lr"].iloc[0] / math.sqrt(1 + float(noisy[name].iloc[0]) ** 2)
            plain = table[(table["arm"] == "base") & (table["batch"] == base["batch"].iloc[0])]
            if plain.empty:
                return ()
            near = min(plain["lr"].unique(), key=lambda lr: abs(math.log(lr / rate)))
            if abs(math.log(near / rate)) > ALIKE:
                return ()
            found = ratio(noisy, pd.DataFrame(plain[plain["lr"] == near]))
            return (
                Part(f"by more than 20 % as well against a learning rate of {near:g}, which makes "
                     "the signal's step as short under Adam", above(found.found, 1.2), said(found)),
            )  # fmt: skip
    return ()


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
        axis="waiting time (steps)",
        note=f"in steps, against batch {usual['batch'].iloc[0]:g} at the same learning rate; in "
        f"examples full batches take {number(_examples(full, usual))} times as many",
    )


def _examples(full: pd.DataFrame, usual: pd.DataFrame) -> float:
    arms = [arm.assign(last=arm["last"] * arm["batch"]) for arm in (full, usual)]
    return ratio(*arms, column="examples").found.value


CLAIMS = (
    Claim(
        "noise-added",
        "marginals",
        "Gradient noise is an entropic force: adding some delays the snap.",
        "direction only",
        "abstract; an earlier draft's label-noise runs contradict it",
        "tau longer by more than 20 % with the strongest added noise of each kind, and by more "
        "than Adam's shorter step of the signal explains",
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
