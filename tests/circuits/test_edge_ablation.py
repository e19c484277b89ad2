"""Exact effects: the same numbers as one hooked forward pass an edge."""

import pytest
import torch

from circuits import Circuit, Graph, edge_effects
from circuits.ablation import partners
from circuits.prepared import prepare
from circuits.undisturbed import undisturbed
from tests.circuits.models import ARCHITECTURES, random_tokens, tiny_model
from tests.circuits.slow_edges import replacements, slow_effects, slow_logits, written_by

ABLATIONS = ("zero", "mean", "resample", "patch")
SCORED = (6, 4)


def per_example_score(logits):
    """A metric without symmetries, of logits at two positions."""
    return logits.log_softmax(-1)[:, 0, 3] - 0.5 * logits[:, 1, 1].tanh() + logits[:, 1, 2]


def pair(batch=4, n_pos=8, first=3):
    clean = random_tokens(batch, n_pos)
    corrupt = clean.clone()
    corrupt[:, first : first + 2] = random_tokens(batch, 2, seed=7)
    return clean, corrupt


def fast(model, clean, corrupt, ablation, **options):
    options = {"scored": SCORED} | options
    given = corrupt if ablation == "patch" else None
    return edge_effects(
        model, clean, per_example_score, ablation=ablation, corrupt=given, **options
    )


def slow(model, clean, corrupt, ablation, **options):
    values = replacements(model, ablation, clean, corrupt, partners(len(clean), 0))
    effects = slow_effects(
        model, clean, lambda x: per_example_score(x[:, list(SCORED)]), values, **options
    )
    return list(effects), torch.stack(list(effects.values()))


def assert_same(ours, theirs, tolerance=1e-10):
    scale = theirs.abs().max().clamp_min(1.0)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=(tolerance * scale).item())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_exact_equals_slow(name):
    """Every architecture, ablation and reader, in float64."""
    model = tiny_model(**ARCHITECTURES[name])
    clean, corrupt = pair()
    for ablation in ABLATIONS:
        result = fast(model, clean, corrupt, ablation)
        edges, expected = slow(model, clean, corrupt, ablation)
        assert result.table.edge.tolist() == edges
        assert_same(result.per_example, expected)
        torch.testing.assert_close(
            torch.tensor(result.table.effect.to_numpy()), expected.mean(1), rtol=0, atol=1e-8
        )
        assert (expected.abs() > 1e-4).double().mean() > 0.5  # The comparison is not vacuous.


def test_control_effects_of_shuffled_edges_disagree():
    model = tiny_model()
    clean, corrupt = pair()
    result = fast(model, clean, corrupt, "patch")
    _, expected = slow(model, clean, corrupt, "patch")
    order = torch.randperm(len(expected), generator=torch.Generator().manual_seed(0))
    with pytest.raises(AssertionError):
        assert_same(result.per_example[order], expected, tolerance=1e-2)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_float32_to_1e_5(name):
    """Every ablation on one architecture, and every fifth edge of each under "patch"."""
    model = tiny_model(dtype=torch.float32, **ARCHITECTURES[name])
    clean, corrupt = pair()
    edges = [edge.name for edge in Graph.of(model).edges][:: 1 if name == "LN" else 5]
    for ablation in ABLATIONS if name == "LN" else ("patch",):
        _, expected = slow(model, clean, corrupt, ablation, edges=edges)
        found = fast(model, clean, corrupt, ablation, edges=edges)
        assert_same(found.per_example, expected, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_scored_in_float32_with_a_noise_floor(dtype):
    model = tiny_model(dtype=dtype, scale=0.3)
    exact = tiny_model(dtype=torch.float32, scale=0.3)
    exact.load_state_dict({k: v.float() for k, v in model.state_dict().items()})
    clean, corrupt = pair()
    result = fast(model, clean, corrupt, "patch")
    assert result.per_example.dtype == torch.float32
    assert_same(result.per_example, fast(exact, clean, corrupt, "patch").per_example, 1e-5)
    with torch.no_grad():
        gap = per_example_score(model(clean)[:, list(SCORED)].float()) - result.baseline
    assert result.provenance["noise_floor"] == pytest.approx(gap.abs().max().item(), rel=1e-3)
    assert 0 < result.provenance["noise_floor"] < 0.2
    assert "noise_floor" not in fast(exact, clean, corrupt, "patch").provenance


@pytest.mark.parametrize("name", ["LN", "parallel", "attention only", "rotary", "one layer"])
@pytest.mark.parametrize("at", [(2,), (3, 6), (0, 1, 5)])
def test_effects_a_source_position(name, at):
    model = tiny_model(**ARCHITECTURES[name])
    clean, corrupt = random_tokens(4, 8), random_tokens(4, 8, seed=7)
    for ablation in ("zero", "patch"):
        result = fast(model, clean, corrupt, ablation, positions={"here": at})
        _, expected = slow(model, clean, corrupt, ablation, at=list(at))
        assert_same(result.per_example, expected)


def test_position_groups_make_one_row_each():
    model = tiny_model()
    clean, corrupt = random_tokens(4, 8), random_tokens(4, 8, seed=7)
    groups = {"z": (3, 4), "all": tuple(range(8)), "late": (7,)}
    edges = ["L0H1->L1H0.v", "M0->logits"]
    result = fast(model, clean, corrupt, "mean", positions=groups, edges=edges)
    assert list(result.table.columns) == [
        "edge",
        "source",
        "reader",
        "position",
        "effect",
        "low",
        "high",
    ]
    assert result.table.position.tolist() == ["z", "all", "late"] * 2
    whole = fast(model, clean, corrupt, "mean", edges=edges)
    assert_same(result.per_example[1::3], whole.per_example)
    assert result.per_example[2::3].abs().max() == 0  # Past the last scored position.
    listed = fast(model, clean, corrupt, "mean", positions=[3, (3, 4)], edges=edges)
    assert listed.table.position.tolist() == ["3", "3,4"] * 2
    assert_same(listed.per_example[1::2], result.per_example[::3])


@pytest.mark.parametrize("name", ["one head", "LN", "parallel", "attention only"])
@pytest.mark.parametrize("granularity", ["layer", "layer-qkv"])
def test_merged_heads(name, granularity):
    model = tiny_model(**ARCHITECTURES[name])
    clean, corrupt = pair()
    heads = range(model.cfg.n_heads)
    values = replacements(model, "patch", clean, corrupt)
    result = fast(model, clean, corrupt, "patch", granularity=granularity)

    def parts(edge):
        source, reader = edge.split("->")
        sources = [f"L{source[1:]}H{h}" for h in heads] if source[0] == "A" else [source]
        stem, _, x = reader.partition(".")
        readers = [reader]
        if stem[0] == "A":
            readers = [f"L{stem[1:]}H{h}.{i}" for h in heads for i in (x or "qkv")]
        return [f"{s}->{r}" for s in sources for r in readers]

    clean_score = per_example_score(slow_logits(model, clean, [], values)[:, list(SCORED)])
    for row, edge in enumerate(result.table.edge):
        logits = slow_logits(model, clean, parts(edge), values)
        effect = per_example_score(logits[:, list(SCORED)]) - clean_score
        assert_same(result.per_example[row], effect)
    if name == "one head":
        assert len(result.table) == (15 if granularity == "layer" else 23)


def test_with_one_head_the_layer_edges_apart_are_the_head_edges():
    model = tiny_model(n_heads=1, d_head=16)
    clean, corrupt = pair()
    apart = fast(model, clean, corrupt, "zero", granularity="layer-qkv")
    assert_same(apart.per_example, fast(model, clean, corrupt, "zero").per_example)


def test_a_grouped_key_cuts_what_one_query_head_sees():
    """A hook on the group's keys cuts every head of the group, which is another number."""
    model = tiny_model(**ARCHITECTURES["grouped keys and values"])
    clean, corrupt = pair()
    edges = ["embed->L1H0.k", "embed->L1H1.k"]
    apart = fast(model, clean, corrupt, "patch", edges=edges).per_example
    gap = written_by(model, corrupt)["embed"] - written_by(model, clean)["embed"]

    def cut_group(x, hook):
        x = x.clone()
        x[:, :, 0] += gap
        return x

    model.set_use_split_qkv_input(True)
    with torch.no_grad():
        logits = model.run_with_hooks(clean, fwd_hooks=[("blocks.1.hook_k_input", cut_group)])
        group = per_example_score(logits[:, list(SCORED)])
        group = group - per_example_score(model(clean)[:, list(SCORED)])
    values = replacements(model, "patch", clean, corrupt)
    both = per_example_score(slow_logits(model, clean, edges, values)[:, list(SCORED)])
    alone = per_example_score(slow_logits(model, clean, [], values)[:, list(SCORED)])
    assert_same(group, both - alone)
    assert (apart.sum(0) - group).abs().max() > 1e-5


@pytest.mark.parametrize("name", ["LN", "parallel", "attention only", "grouped keys and values"])
def test_pairs_agree_with_a_real_double_intervention(name):
    """Within a circuit that lacks one edge, the other's effect is what the second cut adds."""
    model = tiny_model(**ARCHITECTURES[name])
    clean, corrupt = pair()
    graph = Graph.of(model)
    generator = torch.Generator().manual_seed(1)
    values = replacements(model, "patch", clean, corrupt)
    for _ in range(3):
        first = graph.edges[int(torch.randint(len(graph.edges), (1,), generator=generator))]
        within = Circuit.of(graph) - Circuit.of(graph, [first])
        result = fast(model, clean, corrupt, "patch", within=within)
        one = per_example_score(slow_logits(model, clean, [first.name], values)[:, list(SCORED)])
        assert_same(result.baseline, one)
        for row in range(0, len(result.table), 5):
            cut = [first.name, result.table.edge[row]]
            two = per_example_score(slow_logits(model, clean, cut, values)[:, list(SCORED)])
            assert_same(result.per_example[row], two - one)


@pytest.mark.parametrize(
    "name", ["LN", "parallel", "no norm", "three layers", "gated", "local attention"]
)
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_effects_within_a_sparse_circuit(name, share):
    model = tiny_model(**ARCHITECTURES[name], scale=0.4)
    clean, corrupt = pair()
    graph = Graph.of(model)
    drawn = torch.rand(len(graph.edges), generator=torch.Generator().manual_seed(2)) < share
    cut = [edge for edge, chosen in zip(graph.edges, drawn, strict=True) if chosen]
    within = ~Circuit.of(graph, cut)
    for ablation in ("mean", "patch"):
        values = replacements(model, ablation, clean, corrupt)
        result = fast(model, clean, corrupt, ablation, within=within)
        assert result.table.edge.tolist() == within.names
        names = [edge.name for edge in cut]
        base = per_example_score(slow_logits(model, clean, names, values)[:, list(SCORED)])
        assert_same(result.baseline, base)
        for row in range(0, len(result.table), 2):
            logits = slow_logits(model, clean, [*names, result.table.edge[row]], values)
            effect = per_example_score(logits[:, list(SCORED)]) - base
            assert_same(result.per_example[row], effect)


def test_measuring_a_circuit_is_cutting_all_other_edges():
    model = tiny_model()
    clean, corrupt = pair()
    graph = Graph.of(model)
    circuit = Circuit.of(graph, graph.edges[::3])
    with undisturbed(model):
        prepared = prepare(model, clean, "kl", ablation="patch", corrupt=corrupt)
        measured = prepared.measure(circuit)
    values = replacements(model, "patch", clean, corrupt)
    logits = slow_logits(model, clean, (~circuit).names, values).log_softmax(-1)
    own = slow_logits(model, clean, [], values).log_softmax(-1)
    assert_same(measured, (own.exp() * (own - logits)).sum(-1).mean(-1))


def test_a_subset_of_edges_in_the_order_given():
    model = tiny_model()
    clean, corrupt = pair()
    everything = fast(model, clean, corrupt, "resample")
    names = ["M1->logits", "embed->M0", "L0H1->L1H0.k", "embed->L0H0.q"]
    some = fast(model, clean, corrupt, "resample", edges=names)
    assert some.table.edge.tolist() == names
    rows = [everything.table.edge.tolist().index(name) for name in names]
    assert_same(some.per_example, everything.per_example[rows])


@pytest.mark.parametrize("memory", [350_000, 500_000])
def test_small_chunks_and_slabs_give_the_same_numbers(memory):
    model = tiny_model()
    clean, corrupt = pair(batch=13)
    whole = fast(model, clean, corrupt, "mean")
    small = fast(model, clean, corrupt, "mean", memory_budget=memory)
    assert_same(small.per_example, whole.per_example)


def test_the_metric_sees_the_whole_batch_in_order_at_the_scored_positions():
    model = tiny_model()
    clean, _ = pair(batch=13)
    seen = []

    def metric(logits):
        seen.append(logits.shape)
        return logits[:, 0, 1] * torch.arange(13)

    result = edge_effects(
        model, clean, metric, ablation="zero", scored=[5, 2], memory_budget=500_000
    )
    assert set(seen) == {(13, 2, 11)}
    plain = edge_effects(model, clean, lambda x: x[:, 0, 1], ablation="zero", scored=[5])
    assert_same(result.per_example, plain.per_example * torch.arange(13))


@pytest.mark.parametrize("metric", ["kl", "loss", "logit_diff"])
def test_named_metrics_equal_their_callables(metric):
    model = tiny_model()
    clean, corrupt = pair()
    with torch.no_grad():
        own = model(clean)[:, [3, 6]].log_softmax(-1)
    target, other = clean[:, [4, 7]], corrupt[:, [4, 7]]
    wrong = own.scatter(-1, target[..., None], -torch.inf).argmax(-1)
    other = torch.where(other == target, wrong, other)

    def by_hand(logits):
        if metric == "kl":
            return (own.exp() * (own - logits.log_softmax(-1))).sum(-1).mean(-1)
        if metric == "loss":
            return -logits.log_softmax(-1).gather(-1, target[..., None]).mean((1, 2))
        chosen = logits.gather(-1, target[..., None]) - logits.gather(-1, other[..., None])
        return chosen.mean((1, 2))

    named = edge_effects(model, clean, metric, corrupt=corrupt, scored=[3, 6])
    called = edge_effects(model, clean, by_hand, corrupt=corrupt, scored=[3, 6])
    assert_same(named.per_example, called.per_example)
    assert named.provenance["metric"] == metric


def test_the_table():
    model = tiny_model()
    clean, corrupt = pair(batch=16)
    result = fast(model, clean, corrupt, "patch")
    table = result.table
    assert list(table.columns) == ["edge", "source", "reader", "effect", "low", "high"]
    assert (table.edge == table.source + "->" + table.reader).all()
    assert ((table.low <= table.effect) & (table.effect <= table.high)).all()
    assert result.per_example.shape == (46, 16)


def test_provenance_says_what_decides_the_numbers():
    model = tiny_model()
    clean, corrupt = pair()
    facts = fast(model, clean, corrupt, "patch").provenance
    assert facts["ablation"] == "patch"
    assert facts["dtype"] == "float64"
    assert facts["device"] == "cpu"
    assert facts["scored"] == [6, 4]
    assert facts["torch"] == torch.__version__
    assert facts["weight_processing"] == {
        "layer_norm_folded": False,
        "writing_weights_centred": False,
        "unembedding_centred": False,
        "value_biases_zero": False,
    }
    again = fast(model, clean, corrupt, "patch").provenance
    assert again == facts
    other = fast(model, corrupt, clean, "patch").provenance
    assert other["batch_sha256"] == facts["corrupt_sha256"] != facts["batch_sha256"]


def test_folded_weights_are_recorded():
    model = tiny_model(normalization_type="LNPre")
    model.process_weights_()
    facts = fast(model, *pair(), "patch").provenance["weight_processing"]
    assert all(facts.values())
