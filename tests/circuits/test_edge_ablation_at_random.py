"""Exact effects on architectures that nobody chose, and intervals that hold what they promise."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import Graph, edge_effects
from circuits.ablation import partners
from circuits.intervals import mean_interval
from tests.circuits.models import random_tokens, tiny_model
from tests.circuits.slow_edges import replacements, slow_effects

ABLATIONS = ("zero", "mean", "resample", "patch")


def draw_config(draw):
    """Any mixture of the supported features that TransformerLens itself can build."""
    config = {
        "n_layers": draw(st.integers(1, 3)),
        "n_heads": draw(st.sampled_from([1, 2, 4])),
        "d_head": draw(st.sampled_from([2, 4, 6])),
        "normalization_type": draw(st.sampled_from(["LN", "LNPre", "RMS", "RMSPre", None])),
        "positional_embedding_type": draw(
            st.sampled_from(["standard", "rotary", "shortformer", "alibi"])
        ),
        "act_fn": draw(st.sampled_from(["gelu", "relu", "silu", "gelu_new", "solu_ln"])),
        "parallel_attn_mlp": draw(st.booleans()),
        "attn_scores_soft_cap": draw(st.sampled_from([-1.0, 2.0])),
        "output_logits_soft_cap": draw(st.sampled_from([-1.0, 3.0])),
        "use_local_attn": draw(st.booleans()),
    }
    config["n_key_value_heads"] = draw(st.sampled_from([None, 1, config["n_heads"]]))
    if config["positional_embedding_type"] == "rotary":
        config |= {"rotary_dim": 2, "rotary_adjacent_pairs": draw(st.booleans())}
    config["gated_mlp"] = draw(st.booleans()) and config["act_fn"] != "solu_ln"
    config["attn_only"] = draw(st.booleans()) and not config["parallel_attn_mlp"]
    if config["use_local_attn"]:
        kinds = st.sampled_from(["local", "global"])
        config |= {"attn_types": [draw(kinds) for _ in range(config["n_layers"])], "window_size": 3}
    return config


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.data())
def test_random_architectures_edges_ablations_and_positions(data):
    draw = data.draw
    scale = 0.3 if (config := draw_config(draw))["normalization_type"] is None else 0.5
    model = tiny_model(seed=draw(st.integers(0, 99)), scale=scale, **config)
    clean, corrupt = random_tokens(3, 6), random_tokens(3, 6, seed=2)
    graph, ablation = Graph.of(model), draw(st.sampled_from(ABLATIONS))
    names = [edge.name for edge in graph.edges]
    edges = draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=8))
    scored = draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=3))
    at = draw(st.none() | st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=3))

    def metric(logits):
        return logits.log_softmax(-1)[..., 3].sum(-1) + logits[:, -1, 1]

    found = edge_effects(
        model,
        clean,
        metric,
        ablation,
        corrupt=corrupt if ablation == "patch" else None,
        edges=edges,
        scored=scored,
        positions=None if at is None else {"here": at},
    )
    values = replacements(model, ablation, clean, corrupt, partners(3, 0))
    slow = slow_effects(model, clean, lambda x: metric(x[:, scored]), values, edges, at)
    expected = torch.stack(list(slow.values()))
    size = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found.per_example, expected, rtol=0, atol=1e-10 * size)


def test_intervals_cover_the_full_datas_value_on_200_resampled_batches():
    """The 95 % interval of an edge's effect holds the effect on all data 90-98 % of the time."""
    model = tiny_model(n_layers=1)
    clean, corrupt = random_tokens(4000, 4), random_tokens(4000, 4, seed=2)
    edges = ["embed->M0", "L0H1->M0", "M0->logits", "embed->L0H0.v"]

    def effects(rows):
        return edge_effects(model, clean[rows], "kl", corrupt=corrupt[rows], edges=edges)

    everything = effects(slice(None)).per_example
    whole = everything.mean(1)
    generator = torch.Generator().manual_seed(0)
    batches = torch.randint(4000, (200, 100), generator=generator)
    inside = torch.zeros(len(edges))
    for number, rows in enumerate(batches):
        _, low, high = mean_interval(everything[:, rows])
        inside += (low <= whole) & (whole <= high)
        if number < 3:  # That is what a trace of this batch alone says.
            table = effects(rows).table
            torch.testing.assert_close(torch.tensor(table.low.to_numpy()), low)
            torch.testing.assert_close(torch.tensor(table.high.to_numpy()), high)
    assert (whole > 1e-3).all()
    assert ((inside / 200 >= 0.90) & (inside / 200 <= 0.98)).all(), inside / 200
