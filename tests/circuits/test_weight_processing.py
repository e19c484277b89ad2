import pytest
import torch

from circuits import InputError, edge_effects
from circuits.weight_processing import processed_copy
from tests.circuits.models import random_tokens, tiny_model

TOKENS = random_tokens(3, 6)


def test_a_processed_copy_predicts_the_same_and_is_recorded():
    model = tiny_model()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    other = processed_copy(model, TOKENS)
    with torch.no_grad():
        torch.testing.assert_close(
            model(TOKENS).log_softmax(-1), other(TOKENS).log_softmax(-1), rtol=0, atol=1e-5
        )
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    facts = edge_effects(other, TOKENS, "kl", ablation="zero").provenance
    assert facts["weight_processing"]["layer_norm_folded"]
    assert facts["weight_processing"]["unembedding_centred"]


def test_processing_moves_zero_ablation_but_not_resampling():
    """Zero ablation depends on the folding, resampling does not; hence never silently."""
    model = tiny_model()
    other = processed_copy(model, TOKENS)

    def effects(which, ablation):
        return edge_effects(which, TOKENS, "kl", ablation=ablation).per_example

    assert (effects(model, "zero") - effects(other, "zero")).abs().max() > 0.05
    torch.testing.assert_close(
        effects(model, "resample"), effects(other, "resample"), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    "config", [{"output_logits_soft_cap": 2.0}, {"positional_embedding_type": "shortformer"}]
)
def test_processing_that_changes_the_model_is_refused(config):
    with pytest.raises(InputError, match="changes this model: log-probabilities move by up to"):
        processed_copy(tiny_model(**config), TOKENS)
