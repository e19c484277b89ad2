"""Task vectors: an encode-pool-decode model whose every number is known, and what must fail."""

import itertools
import math

import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from circuits.errors import InputError
from circuits.node_outputs import node_output
from circuits.task_vector import task_vectors
from circuits.task_vector_patch import patch_task_vector
from circuits.task_vector_probe import probe_task_vectors
from circuits.task_vector_rank import dimension, rank_curve
from circuits.variance_components import variance_shares
from tests.circuits.models import tiny_model

N_GROUPS, N_STATES, LENGTH, GAIN = 4, 5, 9, 12.0
N_VOCAB = N_STATES + N_GROUPS
POOL = 60.0
"""Score of a marker's key: everything else gets e^-60 of the attention."""


def recogniser():
    """Recognises the group by a marker token, and answers state s of group g with s + g + 1.

    Stream: token (9), task (4), answer (5). A0 takes the marker of the group from wherever it
    stands to the task slots of every later position; M1 fires one neuron for each pair of group
    and state, which writes its answer. Without a marker the task slots stay 0.
    """
    cfg = HookedTransformerConfig(
        n_layers=2, n_heads=2, d_model=N_VOCAB + N_GROUPS + N_STATES, d_head=N_VOCAB,
        d_mlp=N_GROUPS * N_STATES, n_ctx=LENGTH, d_vocab=N_VOCAB, act_fn="relu",
        normalization_type=None, positional_embedding_type="rotary", rotary_dim=2,
        init_weights=False, device="cpu",
    )  # fmt: skip
    model = HookedTransformer(cfg)
    for parameter in model.parameters():
        parameter.data.zero_()
        parameter.requires_grad_(False)
    task, answer = N_VOCAB, N_VOCAB + N_GROUPS
    model.embed.W_E[:, :N_VOCAB] = torch.eye(N_VOCAB)
    attn, mlp = model.blocks[0].attn, model.blocks[1].mlp
    # The last two dimensions of a head do not rotate, so scores do not depend on the distance.
    attn.b_Q[0, -1] = POOL * attn.attn_scale
    attn.W_K[0, N_STATES:N_VOCAB, -1] = 1
    for group in range(N_GROUPS):
        attn.W_V[0, N_STATES + group, group] = 1
        attn.W_O[0, group, task + group] = 1
    for group, state in itertools.product(range(N_GROUPS), range(N_STATES)):
        neuron = group * N_STATES + state
        mlp.W_in[task + group, neuron] = mlp.W_in[state, neuron] = 1
        mlp.b_in[neuron] = -1
        mlp.W_out[neuron, answer + (state + group + 1) % N_STATES] = GAIN
    model.unembed.W_U[answer:, :N_STATES] = torch.eye(N_STATES)
    return model


def sequences(n, seed=0, place=0):
    """States at random, with the group's marker at `place` (or at a place of each example's)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, N_STATES, (n, LENGTH), generator=generator)
    groups = torch.arange(n) % N_GROUPS
    where = torch.as_tensor(place).expand(n)
    tokens[torch.arange(n), where] = N_STATES + groups
    return tokens, groups


def answers(groups, tokens):
    """The model's own answers for any group: logit 12 at state + group + 1, 0 elsewhere."""
    right = (tokens + groups[:, None] + 1) % N_STATES
    logits = GAIN * torch.nn.functional.one_hot(right, N_VOCAB).double()
    return logits.softmax(-1)


LATE = (5, 6, 7, 8)


@pytest.fixture(scope="module")
def model():
    return recogniser()


@pytest.fixture(scope="module")
def vectors(model):
    return task_vectors(model, *sequences(40), node="A0", positions=LATE)


@pytest.fixture(scope="module")
def patched(model, vectors):
    tokens, groups = sequences(24, seed=1)
    return patch_task_vector(
        model, vectors, tokens, groups, (groups + 1) % N_GROUPS, answers, reader="M1"
    )


def test_the_model_answers_as_written(model):
    tokens, groups = sequences(12)
    found = model(tokens).softmax(-1)[:, 1:].double()
    torch.testing.assert_close(found, answers(groups, tokens)[:, 1:], atol=1e-5, rtol=1e-4)


def test_the_vectors_are_the_one_hot_groups(vectors):
    assert vectors.labels == (0, 1, 2, 3)
    wanted = torch.zeros(4, vectors.vectors.shape[1])
    wanted[:, N_VOCAB : N_VOCAB + N_GROUPS] = torch.eye(4)
    torch.testing.assert_close(vectors.vectors, wanted)
    # From a corner of the simplex to its middle: sqrt(1 - 1/4).
    assert vectors.table["distance"].tolist() == pytest.approx([math.sqrt(0.75)] * 4)
    assert vectors.table["spread"].tolist() == pytest.approx([0] * 4, abs=1e-6)
    assert vectors.table["examples"].tolist() == [10] * 4


def test_any_node_and_any_labels_will_do(model):
    tokens, groups = sequences(20)
    for node in ("embed", "L0H0", "L0H1", "A0", "M0", "A1", "M1"):
        output = node_output(model, tokens, node)
        found = task_vectors(model, tokens, 10 * groups - 7, node=node)
        assert found.labels == (-7, 3, 13, 23)
        torch.testing.assert_close(found.vectors[1], output[groups == 1].mean((0, 1)))
    torch.testing.assert_close(
        node_output(model, tokens, "A0"),
        node_output(model, tokens, "L0H0") + node_output(model, tokens, "L0H1"),
    )


def test_node_outputs_are_those_of_the_model():
    model = tiny_model(seed=1)
    tokens = torch.randint(0, 11, (4, 7), generator=torch.Generator().manual_seed(0))
    _, cache = model.run_with_cache(tokens)
    attn = model.blocks[1].attn
    close = torch.testing.assert_close
    close(node_output(model, tokens, "embed"), cache["resid_pre", 0])
    close(node_output(model, tokens, "M0"), cache["mlp_out", 0])
    close(node_output(model, tokens, "A1"), cache["attn_out", 1] - attn.b_O)
    close(node_output(model, tokens, "L1H1"), cache["z", 1][:, :, 1] @ attn.W_O[1])


def test_the_probe_knows_the_group_from_the_marker_on(model, vectors):
    """Markers at 0, 3 and 6, so accuracy is (seen + chance of the unseen) and jumps there."""
    tokens, groups = sequences(48, seed=2, place=torch.arange(48) // N_GROUPS % 3 * 3)
    seen = torch.arange(LENGTH)[None] >= (torch.arange(48) // N_GROUPS % 3 * 3)[:, None]
    posterior = torch.full((48, LENGTH, N_GROUPS), 0.25)
    posterior[seen] = (
        torch.nn.functional.one_hot(groups, 4).float()[:, None].expand(-1, 9, -1)[seen]
    )
    table = probe_task_vectors(model, vectors, tokens, groups, posterior=posterior)
    # Where nothing is known all vectors are as near, and the first group is as good a guess.
    wanted = [1 / 3 + 2 / 3 / 4] * 3 + [2 / 3 + 1 / 3 / 4] * 3 + [1.0] * 3
    assert table["accuracy"].tolist() == pytest.approx(wanted)
    assert table["best"].tolist() == pytest.approx(wanted)
    assert table["chance"].tolist() == pytest.approx([0.25] * 9)
    assert (table["low"] <= table["accuracy"]).all()
    assert (table["accuracy"] <= table["high"]).all()


def test_shuffled_groups_are_probed_at_chance(model):
    generator = torch.Generator().manual_seed(0)
    tokens, groups = sequences(400)
    shuffled = groups[torch.randperm(400, generator=generator)]
    wrong = task_vectors(model, tokens, shuffled, node="A0", positions=LATE)
    held_out, own = sequences(400, seed=5)
    mixed = own[torch.randperm(400, generator=generator)]
    table = probe_task_vectors(model, wrong, held_out, mixed, positions=(8,))
    assert table["accuracy"].item() < 0.35


def insert(patched, name, reader="M1"):
    table = patched.table
    return table[(table["insert"] == name) & (table["reader"] == reader)].iloc[0]


def test_another_groups_vector_moves_the_answer_all_the_way(patched):
    row = insert(patched, "target")
    assert row["fraction"] == pytest.approx(1.0, abs=1e-5)
    assert row["kl_target"] == pytest.approx(0.0, abs=1e-5)
    # KL between two answers: 12 nats times the difference of two probabilities.
    high = math.exp(GAIN) / (math.exp(GAIN) + N_VOCAB - 1)
    low = 1 / (math.exp(GAIN) + N_VOCAB - 1)
    assert row["kl_own"] == pytest.approx(GAIN * (high - low), rel=1e-4)


def test_the_controls_of_a_patch_have_their_values(patched):
    assert insert(patched, "none")["fraction"] == pytest.approx(0.0)
    assert insert(patched, "none")["kl_own"] == pytest.approx(0.0, abs=1e-5)
    assert insert(patched, "own")["fraction"] == pytest.approx(0.0, abs=1e-5)
    # A third group's vector: the own answer falls by 12, the target's stays, out of 12 + 12.
    assert insert(patched, "other")["fraction"] == pytest.approx(0.5, abs=1e-4)
    # The logits do not read the task slots at all.
    assert insert(patched, "target", "logits")["fraction"] == pytest.approx(0.0, abs=1e-5)
    assert insert(patched, "random")["fraction"] < 0.3
    assert insert(patched, "target")["low"] > insert(patched, "random")["high"]


def test_everyone_reads_what_one_reader_reads_here(model, vectors, patched):
    tokens, groups = sequences(24, seed=1)
    targets = (groups + 1) % N_GROUPS
    every = patch_task_vector(model, vectors, tokens, groups, targets, answers)
    assert insert(every, "target", "all")["fraction"] == pytest.approx(1.0, abs=1e-5)
    heads = patch_task_vector(model, vectors, tokens, groups, targets, answers, reader="A1.v")
    assert insert(heads, "target", "A1.v")["fraction"] == pytest.approx(0.0, abs=1e-5)


def test_the_answer_node_holds_no_task_vector(model):
    """M1 writes the answer for the current state: its mean over states moves nothing much."""
    tokens, groups = sequences(400)
    mean_answer = task_vectors(model, tokens, groups, node="M1", positions=LATE)
    held_out, own = sequences(48, seed=1)
    found = patch_task_vector(
        model, mean_answer, held_out, own, (own + 1) % N_GROUPS, answers, reader="logits"
    )
    target = insert(found, "target", "logits")["fraction"]
    same = insert(found, "own", "logits")["fraction"]
    # All answers become alike: the own one falls by 12 and the target's stays, whoever's vector.
    assert target == pytest.approx(0.5, abs=0.1)
    assert same == pytest.approx(0.5, abs=0.1)


def test_a_patch_is_the_same_as_a_hook_on_a_random_model():
    model = tiny_model(seed=3).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 11, (16, 8), generator=generator)
    groups = torch.arange(16) % 3
    found = task_vectors(model, tokens, groups, node="A0", positions=(4, 5))
    targets = (groups + 1) % 3
    rows = torch.rand(3, 11, generator=generator, dtype=torch.float64) + 0.1
    rows = rows / rows.sum(-1, keepdim=True)

    def told(group, given):
        return rows[group][:, None].expand(*given.shape, -1)

    patched = patch_task_vector(model, found, tokens, groups, targets, told, reader="all")

    def replace(attn_out, hook):
        attn_out = attn_out.clone()
        attn_out[:, [4, 5]] = found.vectors[targets][:, None] + model.blocks[0].attn.b_O
        return attn_out

    hooked = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_attn_out", replace)])
    log_new = hooked[:, [4, 5]].log_softmax(-1)
    log_old = model(tokens)[:, [4, 5]].log_softmax(-1)
    own, target = told(groups, tokens)[:, [4, 5]], told(targets, tokens)[:, [4, 5]]

    def closeness(log):
        return float(
            (own * (own.log() - log)).sum(-1).mean()
            - (target * (target.log() - log)).sum(-1).mean()
        )

    moved = (closeness(log_new) - closeness(log_old)) / (
        closeness(target.log()) - closeness(log_old)
    )
    assert insert(patched, "target", "all")["fraction"] == pytest.approx(moved)


def test_four_corners_of_a_simplex_have_three_dimensions(vectors):
    found = dimension(vectors)
    assert found.participation_ratio == pytest.approx(3.0)
    assert (found.low, found.high) == pytest.approx((3.0, 3.0))
    assert found.table["share"].tolist() == pytest.approx([1 / 3] * 3)
    assert found.table["cumulative"].tolist() == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_the_rank_that_the_model_needs(model, vectors):
    tokens, _ = sequences(24, seed=1)
    table = rank_curve(model, vectors, tokens, reader="M1").set_index("rank")
    assert table.index.tolist() == [0, 1, 2, 3]
    assert table.at[3, "effect"] == pytest.approx(0.0, abs=1e-5)
    # At rank 0 everybody is the mean group: the answers of all four groups get logit 3.
    clean = answers(torch.zeros(1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long))[0, 0]
    logits = torch.zeros(N_VOCAB, dtype=torch.float64)
    logits[1:5] = GAIN / 4  # groups 0 to 3 answer state 0 with 1 to 4
    blurred = (clean * (clean.log() - logits.log_softmax(-1))).sum()
    assert table.at[0, "effect"] == pytest.approx(float(blurred), rel=1e-4)
    assert table.at[0, "random"] == pytest.approx(float(blurred), rel=1e-4)
    # Three random directions of 18 hold about a sixth of what the model needs.
    assert table.at[3, "random"] > 0.5 * float(blurred)
    assert table["effect"].is_monotonic_decreasing
    assert table["explained"].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])


def components(table):
    return dict(zip(table["component"], table["share"], strict=True))


def test_variance_tells_a_task_head_from_an_answer_head(model):
    tokens, groups = sequences(200)
    late = list(LATE)
    task = components(variance_shares(node_output(model, tokens, "A0"), groups, tokens, late))
    # Not exactly 1: by chance, states were not visited by all groups equally often.
    assert task["group"] == pytest.approx(1.0, abs=0.02)
    assert task["recognition"] == pytest.approx(1.0, abs=0.02)
    answer = components(variance_shares(node_output(model, tokens, "M1"), groups, tokens, late))
    # Given the state the answer is the group's own ...
    assert answer["group_given_state"] == pytest.approx(1.0, abs=0.02)
    assert answer["residual"] == pytest.approx(0.0, abs=0.02)
    # ... but says nothing of its answers to other states, which are never the same, while those of
    # two groups to two states coincide one time in four (a Latin square): (0 - 1/4) / (1 - 0).
    assert answer["recognition"] == pytest.approx(-1 / 4, abs=0.03)
    embed = components(variance_shares(node_output(model, tokens, "embed"), groups, tokens, late))
    assert embed["state"] == pytest.approx(1.0, abs=1e-5)


def synthetic(n=600, seed=0, sizes=(1.0, 2.0, 0.5, 1.5)):
    """Vectors with a group, a state, an interaction and a noise part of known variances."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    n_groups, n_states, d = 30, 12, 20
    groups = torch.arange(n) % n_groups
    states = torch.randint(0, n_states, (n, 6), generator=generator)
    a, b, ab, noise = (math.sqrt(size) for size in sizes)
    values = a * normal(n_groups, d)[groups][:, None] + b * normal(n_states, d)[states]
    values = values + ab * normal(n_groups, n_states, d)[groups[:, None], states]
    return values + noise * normal(n, 6, d), groups, states


def test_variance_shares_recover_known_components():
    values, groups, states = synthetic()
    # One position each, so that averaging over positions takes no noise away.
    found = variance_shares(values, groups, states, positions=[0]).set_index("component")
    wanted = {"group": 0.2, "state": 0.4, "interaction": 0.1, "residual": 0.3}
    for component, share in wanted.items():
        assert found.at[component, "share"] == pytest.approx(share, abs=0.06)
        assert found.at[component, "low"] < found.at[component, "share"]
        assert found.at[component, "share"] < found.at[component, "high"]
    assert sum(found.loc[list(wanted), "share"]) == pytest.approx(1.0)
    assert found.at["recognition", "share"] == pytest.approx(2 / 3, abs=0.15)


def test_shuffled_groups_have_no_share():
    shares = []
    for seed in range(8):
        values, groups, states = synthetic(n=240, seed=seed)
        mixed = groups[torch.randperm(240, generator=torch.Generator().manual_seed(seed))]
        shares.append(components(variance_shares(values, mixed, states)))
    for component in ("group", "interaction"):
        assert abs(sum(share[component] for share in shares) / 8) < 0.02


def test_variance_shares_are_what_a_loop_over_pairs_gives():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(8, 3, 2, generator=generator, dtype=torch.float64)
    groups = torch.arange(8) // 4
    states = torch.tensor([[0, 1, 2]] * 8)  # every example visits every state once
    found = components(variance_shares(values, groups, states))
    y = values - values.mean(0)
    sums: dict[str, list[float]] = {name: [] for name in "ABCDF"}
    raw: dict[str, list[float]] = {name: [] for name in "DF"}
    for i, j, s, t in itertools.product(range(8), range(8), range(3), range(3)):
        same = bool(groups[i] == groups[j])
        if i == j:
            name = "A" if s == t else None
        elif same:
            name = "B" if s == t else "C"
        else:
            name = "D" if s == t else "F"
        if name:
            sums[name].append(float(y[i, s] @ y[j, t]))
        if name in ("D", "F"):
            raw[name].append(float(values[i, s] @ values[j, t]))
    a, b, c, d, f = (sum(sums[name]) / len(sums[name]) for name in "ABCDF")
    state = sum(raw["D"]) / len(raw["D"]) - sum(raw["F"]) / len(raw["F"])
    parts = {"group": c - f, "state": state, "interaction": b - d - c + f, "residual": a - b}
    for name, part in parts.items():
        assert found[name] == pytest.approx(part / sum(parts.values()))


def test_without_states_only_the_group_is_told_from_the_rest():
    values, groups, _ = synthetic(sizes=(1.0, 0.0, 0.0, 3.0))
    found = components(variance_shares(values, groups, positions=[0]))
    assert set(found) == {"group", "residual"}
    assert found["group"] == pytest.approx(0.25, abs=0.05)


def test_the_model_is_left_as_it_was_found(model, vectors):
    before = {name: p.clone() for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    tokens, groups = sequences(16, seed=1)
    patch_task_vector(model, vectors, tokens, groups, (groups + 1) % 4, answers)
    rank_curve(model, vectors, tokens, ranks=[1])
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    assert not any(hook.fwd_hooks for hook in model.hook_dict.values())


def test_bad_extraction_is_refused_in_one_line(model):
    tokens, groups = sequences(8)
    with pytest.raises(InputError, match=r"groups holds 1 group: give examples of at least two"):
        task_vectors(model, tokens, torch.zeros_like(groups), node="A0")
    with pytest.raises(InputError, match=r"group 9 has a single example: give at least two"):
        task_vectors(model, tokens, torch.tensor([9, 1, 2, 1, 2, 1, 2, 1]), node="A0")
    with pytest.raises(InputError, match=r"groups has shape \(7,\): give one label an example"):
        task_vectors(model, tokens, groups[:7], node="A0")
    with pytest.raises(InputError, match=r"node='A7' is not in this model; near matches: A"):
        task_vectors(model, tokens, groups, node="A7")
    with pytest.raises(InputError, match=r"position 9 is out of range; the sequences have 9"):
        task_vectors(model, tokens, groups, node="A0", positions=(9,))
    attention_only = tiny_model(attn_only=True)
    with pytest.raises(InputError, match=r"node='M0' is an MLP but the model is attention-only"):
        task_vectors(attention_only, tokens, groups, node="M0")


def test_bad_patches_and_probes_are_refused_in_one_line(model, vectors):
    tokens, groups = sequences(16, seed=1)
    targets = (groups + 1) % N_GROUPS

    def ask(**changes):
        given = {"groups": groups, "targets": targets, "answers": answers, **changes}
        patch_task_vector(model, vectors, tokens, **given)

    with pytest.raises(InputError, match=r"reader='L0H0.q' does not read A0; near matches"):
        ask(reader="L0H0.q")
    with pytest.raises(InputError, match=r"targets equals groups for example 0: give every"):
        ask(targets=groups)
    with pytest.raises(InputError, match=r"targets holds group 4, which has no task vector"):
        ask(targets=targets + 3)
    with pytest.raises(InputError, match=r"answers gave \(16, 9, 5\); it must give probabilities"):
        ask(answers=lambda g, t: answers(g, t)[..., :5])
    with pytest.raises(InputError, match=r"answers must give probabilities: none below 0"):
        ask(answers=lambda g, t: 2 * answers(g, t))
    with pytest.raises(InputError, match=r"targets has shape \(3,\): give one label an example"):
        ask(targets=targets[:3])
    with pytest.raises(InputError, match=r"ranks=\[4\] must lie between 0 and 3"):
        rank_curve(model, vectors, tokens, ranks=[4])
    with pytest.raises(InputError, match=r"tokens are the sequences that the task vectors are"):
        probe_task_vectors(model, vectors, *sequences(40))
    with pytest.raises(InputError, match=r"posterior has shape \(16, 9, 3\); it must be \(16, 9,"):
        probe_task_vectors(model, vectors, tokens, groups, posterior=torch.zeros(16, 9, 3))
    with pytest.raises(InputError, match=r"states has shape \(16, 8\) but values has \(16, 9\)"):
        variance_shares(torch.randn(16, 9, 2), groups, tokens[:, :8])
    with pytest.raises(InputError, match=r"states holds a single state: leave states out"):
        variance_shares(torch.randn(16, 9, 2), groups, torch.zeros_like(tokens))
    with pytest.raises(InputError, match=r"values do not vary over examples"):
        variance_shares(torch.zeros(16, 9, 2), groups)
