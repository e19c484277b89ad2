import json

import torch

from circuits.provenance import provenance, tensor_sha256, weight_processing
from tests.circuits.models import random_tokens, tiny_model


def test_plain_values_that_change_with_what_they_describe():
    model, tokens = tiny_model(), random_tokens(3, 5)
    facts = provenance(model, tokens, ablation="mean", partner=torch.arange(3))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["batch_shape"] == [3, 5]
    assert facts["ablation"] == "mean"
    assert facts["partner"] == tensor_sha256([torch.arange(3)])
    other = provenance(model, tokens.flip(0))
    assert other["batch_sha256"] != facts["batch_sha256"]
    assert other["weights_sha256"] == facts["weights_sha256"]
    with torch.no_grad():
        model.unembed.b_U[0] += 1e-12
    assert provenance(model, tokens)["weights_sha256"] != facts["weights_sha256"]


def test_hashes_see_shape_and_dtype():
    zeros = torch.zeros(4)
    assert tensor_sha256([zeros]) != tensor_sha256([zeros.view(2, 2)])
    assert tensor_sha256([zeros]) != tensor_sha256([zeros.int()])
    assert tensor_sha256([zeros.bfloat16()]) == tensor_sha256([torch.zeros(4).bfloat16()])


def test_processing_is_measured_on_the_weights():
    model = tiny_model()
    assert not any(weight_processing(model).values())
    with torch.no_grad():
        model.unembed.W_U -= model.unembed.W_U.mean(-1, keepdim=True)
        for block in model.blocks:
            block.attn.b_V.zero_()
    assert weight_processing(model) == {
        "layer_norm_folded": False,
        "writing_weights_centred": False,
        "unembedding_centred": True,
        "value_biases_zero": True,
    }
