"""A made-up run of any size for the explorer: heads that appear at known steps, with noise."""

from itertools import product

import numpy as np
import pandas as pd

from analyses.explorer_data.tables import Attention, ExplorerData, RunData, Setting

LN_K = float(np.log(20))


def edge_names(n_layers: int, n_heads: int) -> list[str]:
    """Every edge of a model, in causal order."""
    sources, names = ["embed"], []
    for layer in range(n_layers):
        heads = [f"L{layer}H{head}" for head in range(n_heads)]
        names += [f"{s}->{head}.{port}" for head, port, s in product(heads, "qkv", sources)]
        sources += heads
        names += [f"{source}->M{layer}" for source in sources]
        sources.append(f"M{layer}")
    return names + [f"{source}->logits" for source in sources]


def course(rng: np.random.Generator, steps: np.ndarray, count: int, rare: float) -> np.ndarray:
    """Effects `[step, item]`: a few rise at a step of their own, the rest is noise around 0."""
    size = rng.pareto(1.4, count) * 0.05 * (rng.random(count) < rare)
    size *= np.where(rng.random(count) < 0.15, -0.5, 1.0)
    middle = rng.uniform(0.1, 0.8, count) * steps[-1]
    rise = 1 / (1 + np.exp(-(steps[:, None] - middle) / (0.04 * steps[-1])))
    noise = 0.004 * rng.standard_normal((len(steps), count))
    return (np.clip(size, -0.9, 1.9) * rise + noise).astype(np.float32)


def tidy(steps: np.ndarray, names: list[str], effects: np.ndarray, index: str) -> pd.DataFrame:
    """A row for each step and name, with an interval around each effect."""
    half = 0.008 + 0.06 * np.abs(effects)
    return pd.DataFrame(
        {
            "step": np.repeat(steps, len(names)),
            index: np.tile(np.array(names, dtype=object), len(steps)),
            "effect": effects.ravel(),
            "low": (effects - half).ravel(),
            "high": (effects + half).ravel(),
        }
    )


def births(steps: np.ndarray, names: list[str], effects: np.ndarray, kind: str) -> pd.DataFrame:
    """The first step at which each name leaves a band of fixed width."""
    above = np.abs(effects) > 0.012
    lasting = np.logical_and.accumulate(above[::-1], axis=0)[::-1]
    born = np.where(lasting.any(0), steps[lasting.argmax(0)].astype(float), np.nan)
    peak = np.abs(effects).argmax(0)
    return pd.DataFrame(
        {
            "component": names,
            "kind": kind,
            "born": born,
            "died": np.nan,
            "band_low": -0.012,
            "band_high": 0.012,
            "peak_step": steps[peak],
            "peak_effect": effects[peak, np.arange(len(names))],
        }
    )


def made_up_setting(
    steps: np.ndarray, n_layers: int, n_heads: int, seed: int, ablation: str, position: str = "all"
) -> Setting:
    """Edges, heads and births, and a pruned circuit at the last step."""
    rng = np.random.default_rng(seed)
    names = edge_names(n_layers, n_heads)
    heads = [f"L{layer}H{head}" for layer, head in product(range(n_layers), range(n_heads))]
    edge_effects = course(rng, steps, len(names), 0.5)
    head_effects = course(rng, steps, len(heads), 0.8)
    edges = tidy(steps, names, edge_effects, "edge")
    ends = [name.split("->") for name in names]
    edges["source"] = np.tile(np.array([one for one, _ in ends], dtype=object), len(steps))
    edges["reader"] = np.tile(np.array([two for _, two in ends], dtype=object), len(steps))
    both = [births(steps, names, edge_effects, "edge"), births(steps, heads, head_effects, "head")]
    kept = [name for name, effect in zip(names, edge_effects[-1], strict=True) if effect > 0.05]
    return Setting(
        ablation,
        "head",
        position,
        edges,
        tidy(steps, heads, head_effects, "head"),
        pd.concat(both, ignore_index=True),
        {int(steps[-1]): tuple(kept)},
    )


def made_up_run(
    name: str = "made-up",
    n_layers: int = 4,
    n_heads: int = 4,
    n_steps: int = 40,
    n_pos: int = 14,
    seed: int = 0,
    ablations: tuple[str, ...] = ("zero", "mean"),
    task: str = "marginals",
    text: str = "",
) -> RunData:
    """A whole run; `text` is put into the names that come from outside."""
    rng = np.random.default_rng(seed)
    steps = np.unique(np.linspace(0, 8000, n_steps).round(-1).astype(int))
    settings = [
        made_up_setting(steps, n_layers, n_heads, seed + place, ablation)
        for place, ablation in enumerate(ablations)
    ]
    heads = tuple(settings[0].heads["head"].unique())
    logits = rng.standard_normal((len(steps), len(heads), n_pos, n_pos)) * 2
    logits = np.where(np.tri(n_pos, dtype=bool), logits, -np.inf)
    patterns = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    provenance = {
        "subtitle": [f"{n_layers} layers x {n_heads} heads", "zero ablation"],
        "shown": {
            "seeds": {"init": 42, "data": 0},
            "versions": {"torch": "2.13.0", "mechinterp-toolkit": "0.1.0"},
            "batch sha256": "0" * 64,
        },
        "note": text,
    }
    return RunData(
        name=name,
        task=task,
        steps=tuple(int(step) for step in steps),
        settings=tuple(settings),
        log=made_up_log(rng),
        reference_lines={"ln_k": LN_K, "ln_36": float(np.log(36)), "marginal_target_ce": LN_K / 5},
        compared={
            f"candidate_loss{text}": ("ln_k",),
            "candidate_loss": ("ln_k",),
            "first_token_ce": ("ln_36", "ln_k"),
            "target_ce": ("marginal_target_ce",),
        },
        tables=made_up_tables(rng, steps, heads, n_layers, text),
        absent={"curvature": "Curvature was not computed; ask for it with --curvature."},
        attention=Attention(heads, tuple(f"{place} t{text}" for place in range(n_pos)), patterns),
        provenance=provenance,
    )


def made_up_log(rng: np.random.Generator) -> pd.DataFrame:
    """A plateau at ln K that ends in a snap."""
    steps = np.arange(0, 8001, 50)
    fall = 1 / (1 + np.exp((steps - 4200) / 250))
    table = pd.DataFrame({"step": steps})
    table["train_loss"] = 0.6 + 2.3 * np.exp(-steps / 90) + 0.6 * fall
    table["train_loss"] += 0.03 * rng.standard_normal(len(steps))
    table["first_token_ce"] = LN_K * fall + 1.0 * np.exp(-steps / 60)
    table["candidate_loss"] = LN_K * fall + 0.4 * np.exp(-steps / 80)
    table["target_ce"] = 0.6 * fall + 2.2 * np.exp(-steps / 300)
    table["z_gap"] = 3.5 * (1 - fall)
    table["candidate_accuracy"] = 0.05 + 0.95 * (1 - fall)
    for name in table.columns.drop(["step", "train_loss"]):
        table[f"{name}_se"] = 0.02 + 0.02 * table[name].abs()
    return table


def made_up_tables(
    rng: np.random.Generator, steps: np.ndarray, heads: tuple[str, ...], n_layers: int, text: str
) -> dict[str, pd.DataFrame]:
    """Scores, attribution, cosines, agreement, overlap and hands."""
    middle = steps[len(steps) // 2]
    scores = pd.DataFrame(
        [
            {
                "step": step,
                "score": f"{score}{text}",
                "component": head,
                "value": (value := 1 / (1 + np.exp(-(step - middle) / 400)) / (1 + place)),
                "low": value - 0.05,
                "high": value + 0.05,
            }
            for score in ("prefix_matching", "selector")
            for place, head in enumerate(heads)
            for step in steps
        ]
    )
    sources = ["bias", "embed", *heads, *(f"M{layer}" for layer in range(n_layers))]
    values = rng.standard_normal((len(steps), len(sources))) * steps[:, None] / steps[-1]
    attribution = tidy(steps, sources, values, "source").rename(columns={"effect": "contribution"})
    updates = steps[:-1]
    pairs = [
        (int(step), lag)
        for place, step in enumerate(updates)
        for lag in range(1, min(len(updates) - place, 64))
    ]
    cosines = pd.DataFrame(pairs, columns=["step", "lag"])
    cosines["group"] = "model"
    cosines["cosine"] = 0.4 / cosines["lag"] + 0.05 * rng.standard_normal(len(pairs))
    cosines["sign_band"] = 0.08
    lags = sorted(cosines["lag"].unique())
    overlap = pd.DataFrame(
        [
            {"step_a": a, "step_b": b, "jaccard": np.exp(-abs(i - j) / 8), "null_low": 0.02,
             "null_high": 0.1, "spearman": 0.5}
            for i, a in enumerate(steps) for j, b in enumerate(steps) if i < j
        ]
    )  # fmt: skip
    agreement = pd.DataFrame(
        [
            {"step": step, "method": f"{method}{text}", "spearman": 0.5 + 0.4 * k, "top_k": 50,
             "overlap": 0.6}
            for k, method in enumerate(("eap", "eap_ig")) for step in steps
        ]
    )  # fmt: skip
    return {
        "scores": scores,
        "attribution": attribution,
        "cosines": cosines,
        "momentum": pd.DataFrame({"lag": lags, "momentum": [0.3 / lag for lag in lags]}),
        "overlap": overlap,
        "agreement": agreement,
        "phases": pd.DataFrame(
            {"phase": ["plateau", f"snap{text}"], "start": [0, 3600], "end": [3600, 4900]}
        ),
        "hands": pd.DataFrame(
            {"reader": ["L1H0.q"], "step": [int(middle)], "before": ["embed"], "after": ["L0H1"]}
        ),
    }


def made_up_data(**options) -> ExplorerData:
    """One run on a page."""
    return ExplorerData((made_up_run(**options),), "python -m analyses explorer --run made-up")
