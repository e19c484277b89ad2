"""Pretrained names and their revisions, from a hub cache that this test makes: no network."""

import pytest
import torch

from circuits.errors import InputError
from mechinterp.other_models import find_model, load_model
from mechinterp.trace import main
from tests.mechinterp.tiny_checkpoints import CONFIGS, own_model, pairs, save, write

FEW = torch.tensor([[1, 2, 3, 4]])
STEPS = {"main": 0, "step3000": 1}
"""Branch, and the seed of the weights there."""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache of somebody who has downloaded two checkpoints of a Pythia, and is offline now."""
    place = tmp_path / "hub" / "models--EleutherAI--pythia-14m"
    for branch, seed in STEPS.items():
        commit = f"{seed + 1:040x}"
        save(own_model(CONFIGS["neox"](), seed), place / "snapshots" / commit)
        (place / "refs").mkdir(exist_ok=True)
        (place / "refs" / branch).write_text(commit)
    for module in ("huggingface_hub.constants", "transformers.utils.hub"):
        for name, value in (("HF_HUB_CACHE", str(tmp_path / "hub")), ("HF_HUB_OFFLINE", True)):
            monkeypatch.setattr(f"{module}.{name}", value, raising=False)


@pytest.mark.parametrize(
    ("name", "revision", "branch"),
    [
        ("pythia-14m", None, "main"),
        ("EleutherAI/pythia-14m", "3000", "step3000"),
        ("PYTHIA-14M", "step3000", "step3000"),
    ],
)
def test_a_revision_is_the_checkpoint_of_that_step(cache, name, revision, branch):
    source = find_model(name, revision)
    model = load_model(source, FEW)
    own = own_model(CONFIGS["neox"](), STEPS[branch])
    other = own_model(CONFIGS["neox"](), 1 - STEPS[branch])
    assert (source.name, source.revision) == (
        "EleutherAI/pythia-14m",
        None if revision is None else branch,
    )
    with torch.no_grad():
        torch.testing.assert_close(model(FEW), own(FEW).logits, rtol=0, atol=1e-4)
        assert (model(FEW) - other(FEW).logits).abs().max() > 0.1


def test_a_name_is_traced_from_the_cache(cache, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(pairs((4, 4, 5)), tmp_path / "pairs.jsonl")
    argv = ["--model", "pythia-14m", "--data", "pairs.jsonl", "--granularity", "layer"]
    assert main([*argv, "--revision", "3000"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "EleutherAI/pythia-14m, step 3000: GPTNeoXForCausalLM, 2 layers" in captured.out
    assert "wrote traces/EleutherAI-pythia-14m-step_3000.html" in captured.out
    assert (tmp_path / "traces" / "EleutherAI-pythia-14m-step_3000.html").exists()


def test_what_the_cache_lacks_is_one_line(cache):
    with pytest.raises(InputError, match=r"pythia-14m .*cannot be loaded \(OSError: ") as error:
        load_model(find_model("pythia-14m", "4000"), FEW)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"gpt2, from the hub or its cache, cannot be loaded"):
        find_model("gpt2")
