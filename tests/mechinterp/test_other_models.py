"""Traces of other people's models against transformers' own models and hand-made interventions."""

import json

import pytest
import torch

from circuits import Graph
from circuits.errors import InputError
from mechinterp.other_models import find_model, load_model
from mechinterp.other_models_tracing import trace_other
from mechinterp.trace import main
from mechinterp.trace_json import as_json
from mechinterp.trace_parts import Options
from tests.circuits.slow_edges import slow_effects, written_by
from tests.mechinterp.tiny_checkpoints import (
    CONFIGS,
    D_VOCAB,
    add_tokenizer,
    own_model,
    pairs,
    save,
    write,
)

LENGTHS = (5, 7, 5, 7)
FEW = torch.tensor([[1, 2, 3, 4, 5, 6]])
EDGES = ("embed->L0H1.q", "embed->L1H3.v", "L0H2->L1H1.k", "L0H0->M1", "M0->L1H2.v", "M1->logits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every tiny checkpoint in a directory of its name, and the pairs."""
    folder = tmp_path_factory.mktemp("other")
    for name, config in CONFIGS.items():
        save(own_model(config()), folder / name)
    write(pairs(LENGTHS), folder / "pairs.jsonl")
    write(pairs((6, 6, 6, 6)), folder / "even.jsonl")
    return folder


@pytest.fixture(scope="module")
def owns():
    return {name: own_model(config()) for name, config in CONFIGS.items()}


def trace(folder, name, *argv, data="pairs.jsonl"):
    out = folder / f"{name}.json"
    files = ["--json", str(out), "--html", str(folder / f"{name}.html")]
    argv = ["--model", str(folder / name), "--data", str(folder / data), *files, *argv]
    assert main(argv) == 0
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def traced(folder):
    """Each model, traced with the answer's logit minus the wrong one's, patching."""
    return {name: trace(folder, name, "--metric", "logit-diff", "--quiet") for name in CONFIGS}


def metric(logits, row):
    return (logits[0, -1, row["answer"]] - logits[0, -1, row["wrong"]]).item()


@pytest.mark.parametrize("name", CONFIGS)
def test_transformer_lens_gives_transformers_logits(name, folder, owns):
    model = load_model(find_model(str(folder / name)), FEW)
    tokens = torch.randint(0, D_VOCAB, (3, 9), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        ours, theirs = model(tokens), owns[name](tokens).logits
    assert theirs.std() > 0.1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
    assert not model.cfg.normalization_type.endswith("Pre")


@pytest.mark.parametrize("name", CONFIGS)
def test_the_metric_is_transformers_own(name, owns, traced):
    """Prompt by prompt and unpadded, though the trace pads them to one length."""
    rows = pairs(LENGTHS)
    for side in ("clean", "corrupt"):
        values = [metric(owns[name](torch.tensor([row[side]])).logits, row) for row in rows]
        assert traced[name][side]["value"] == pytest.approx(sum(values) / len(values), abs=1e-4)
        assert len({round(value, 3) for value in values}) == len(values)


def head_slot(own, name, layer):
    """The module of transformers whose input holds the heads of a layer side by side."""
    if name == "gpt2":
        return own.transformer.h[layer].attn.c_proj
    if name == "neox":
        return own.gpt_neox.layers[layer].attention.dense
    return own.model.layers[layer].self_attn.o_proj


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("head", ["L0H3", "L1H2"])
def test_a_head_patched_by_a_hook_on_transformers_has_the_traced_effect(name, head, owns, traced):
    own, effects = owns[name], []
    layer, index = int(head[1]), int(head[3])
    slot, span = head_slot(own, name, layer), slice(4 * index, 4 * index + 4)
    for row in pairs(LENGTHS):
        seen = []
        with torch.no_grad():

            def keep(_, given, seen=seen):
                seen.append(given[0].clone())

            kept = slot.register_forward_pre_hook(keep)
            own(torch.tensor([row["corrupt"]]))
            kept.remove()

            def swap(_, given, seen=seen):
                changed = given[0].clone()
                changed[..., span] = seen[0][..., span]
                return (changed,)

            clean = metric(own(torch.tensor([row["clean"]])).logits, row)
            hook = slot.register_forward_pre_hook(swap)
            effects.append(metric(own(torch.tensor([row["clean"]])).logits, row) - clean)
            hook.remove()
    found = {row["head"]: row["effect"] for row in traced[name]["heads"]}
    assert found[head] == pytest.approx(sum(effects) / len(effects), abs=1e-4)
    assert max(map(abs, effects)) > 1e-3


@pytest.mark.parametrize("name", CONFIGS)
def test_edges_have_the_effects_of_hooks_prompt_by_prompt(name, folder, traced):
    model = load_model(find_model(str(folder / name)), FEW)
    effects = []
    for row in pairs(LENGTHS):
        clean, corrupt = torch.tensor([row["clean"]]), torch.tensor([row["corrupt"]])
        values = written_by(model, corrupt)

        def measure(logits, row=row):
            return (logits[:, -1, row["answer"]] - logits[:, -1, row["wrong"]]).double()

        effects.append(slow_effects(model, clean, measure, values, EDGES))
    found = {row["edge"]: row["effect"] for row in traced[name]["edges"]}
    for edge in EDGES:
        by_hand = torch.cat([effect[edge] for effect in effects])
        assert found[edge] == pytest.approx(by_hand.mean().item(), abs=1e-4)
        assert by_hand.abs().max() > 1e-3
    assert list(found) == [edge.name for edge in Graph.of(model).edges]


def test_the_terminal_and_the_page_show_the_numbers(folder, capsys):
    body = trace(folder, "llama", "--metric", "logit-diff", "--top", "3")
    out = capsys.readouterr().out
    assert "llama: LlamaForCausalLM, 2 layers x 4 heads, d_model 16" in out
    assert "patch ablation, 4 of the 4 pairs of pairs.jsonl" in out
    for side in ("clean", "corrupt"):
        assert f"{body[side]['value']:.3f}" in out
    strongest = sorted(body["edges"], key=lambda row: -abs(row["effect"]))[:3]
    for row in body["heads"] + strongest:
        name = row.get("edge") or row["head"]
        assert any(name in line and f"{row['effect']:+.3f}" in line for line in out.splitlines())
    assert "of the whole model on 4 examples" in out
    page = (folder / "llama.html").read_text()
    assert "llama, patch ablation" in page
    assert "<script src=" not in page


def test_text_is_what_its_token_ids_are(folder, traced):
    add_tokenizer(folder / "gpt2")
    rows = [
        {k: " ".join(f"w{i}" for i in ([v] if type(v) is int else v)) for k, v in row.items()}
        for row in pairs(LENGTHS)
    ]
    write(rows, folder / "text.jsonl")
    body = measured(folder, "gpt2", "logit-diff", "patch", "text.jsonl", "head")
    for part in ("clean", "corrupt", "heads", "edges"):
        assert body[part] == traced["gpt2"][part]


def measured(folder, name, metric, ablation, data="pairs.jsonl", granularity="layer", **more):
    """The numbers alone, without the command, its page and its tables."""
    options = Options(ablation, granularity, **more)
    return as_json(trace_other(find_model(str(folder / name)), folder / data, metric, options))


@pytest.mark.parametrize(
    ("ablation", "data"),
    [("zero", "pairs"), ("mean", "pairs"), ("mean", "even"), ("resample", "pairs")],
)
def test_a_wrong_answer_is_the_contrast_under_every_ablation(ablation, data, folder, owns):
    body = measured(folder, "neox", "logit-diff", ablation, f"{data}.jsonl")
    rows = [json.loads(line) for line in (folder / f"{data}.jsonl").read_text().splitlines()]
    values = [metric(owns["neox"](torch.tensor([row["clean"]])).logits, row) for row in rows]
    assert body["clean"]["value"] == pytest.approx(sum(values) / 4, abs=1e-4)
    assert {"embed->A0", "A0->A1", "M1->logits"} <= {row["edge"] for row in body["edges"]}
    if ablation == "resample":
        return
    model = load_model(find_model(str(folder / "neox")), FEW)
    seen, effects = [], []
    for row in rows:
        _, cache = model.run_with_cache(torch.tensor([row["clean"] + [row["answer"]]]))
        seen.append(cache["blocks.0.attn.hook_z"][0, :, 1])
    for row in rows:
        tokens = torch.tensor([row["clean"]])

        def swap(z, hook):
            for place in range(z.shape[1]):
                there = [x[place] for x in seen if place < len(x) - (data == "even")]
                mean = torch.stack(there).mean(0)
                z[:, place, 1] = mean if ablation == "mean" else torch.zeros_like(mean)
            return z

        after = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", swap)])
        effects.append(metric(after, row) - metric(model(tokens), row))
    found = {row["head"]: row["effect"] for row in body["heads"]}
    assert found["L0H1"] == pytest.approx(sum(effects) / 4, abs=1e-4)
    assert max(map(abs, effects)) > 1e-3


def test_loss_and_kl_are_the_textbook_values(folder, owns):
    rows, own = pairs(LENGTHS), owns["qwen2"]

    def log_probs(side, row):
        return own(torch.tensor([row[side]])).logits[0, -1].double().log_softmax(-1)

    loss = measured(folder, "qwen2", "loss", "patch")
    assert loss["metric"] == "loss"
    by_hand = [-log_probs("clean", row)[row["answer"]].item() for row in rows]
    assert loss["clean"]["value"] == pytest.approx(sum(by_hand) / 4, abs=1e-4)
    no_answers = [{"clean": row["clean"], "corrupt": row["corrupt"]} for row in rows]
    write(no_answers, folder / "bare.jsonl")
    kl = measured(folder, "qwen2", "kl", "patch", "bare.jsonl", gradients=True)
    assert kl["clean"]["value"] == pytest.approx(0, abs=1e-6)
    both = [(log_probs("clean", row), log_probs("corrupt", row)) for row in rows]
    by_hand = [(p.exp() * (p - q)).sum().item() for p, q in both]
    assert kl["corrupt"]["value"] == pytest.approx(sum(by_hand) / 4, abs=1e-4)
    assert set(kl["gradients"]) == {"eap-ig-inputs", "eap-ig-activations"}


def test_a_model_that_transformer_lens_reads_otherwise_is_refused(folder, tmp_path):
    """TransformerLens gives every GPT-NeoX the rotary base 10000, whatever its configuration."""
    config = CONFIGS["neox"]()
    changed = {"rope_theta": 3.0, "partial_rotary_factor": 1.0}
    config.rope_parameters = dict(config.rope_parameters, **changed)
    save(own_model(config), tmp_path / "other-base")
    with pytest.raises(InputError, match=r"other-base as another function than transformers does"):
        load_model(find_model(str(tmp_path / "other-base")), FEW)


@pytest.mark.parametrize("name", ["gpt2-llama", "tiny-gemma-2-bert"])
def test_words_in_a_path_mean_nothing(name, folder, owns, tmp_path):
    place = save(owns["gpt2"], tmp_path / name)
    model = load_model(find_model(str(place)), FEW)
    with torch.no_grad():
        torch.testing.assert_close(model(FEW), owns["gpt2"](FEW).logits, rtol=0, atol=1e-4)
