import dataclasses

import pytest
import torch

from mechinterp.config import ModelConfig
from mechinterp.model import build_model
from mechinterp.scored_logits import covers, scored_logits, whole_logits

MODEL = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=12)
VARIANTS = {
    "layer norm": {},
    "root mean square": {"normalization": "RMSPre"},
    "no norm": {"normalization": "none"},
    "attention only": {"attn_only": True},
    "one layer": {"n_layers": 1},
    "wide heads": {"d_head": 5},
    "rotary": {"positions": "rotary"},
    "shortformer": {"positions": "shortformer"},
}


def _model(changes):
    model = build_model(dataclasses.replace(MODEL, **changes), 9, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("scored", [(4, 6, 9), (9,), tuple(range(10))])
def test_logits_and_gradients_are_those_of_the_forward_pass(changes, scored):
    model = _model(changes)
    tokens = torch.randint(9, (3, 11), generator=torch.Generator().manual_seed(0))
    at = torch.tensor(scored)
    plain = model(tokens[:, : scored[-1] + 1])[:, at]
    found = []
    for logits in (plain, scored_logits(model, tokens, at), whole_logits(model, tokens, at)):
        model.zero_grad()
        logits.square().mean().backward()
        found.append((logits.detach(), [p.grad for p in model.parameters()]))
    for logits, gradients in found[1:]:
        torch.testing.assert_close(logits, found[0][0], rtol=1e-10, atol=1e-12)
        for ours, theirs in zip(gradients, found[0][1], strict=True):
            both = [torch.zeros(()) if g is None else g for g in (ours, theirs)]
            torch.testing.assert_close(*both, rtol=1e-8, atol=1e-10)


def test_models_that_are_not_covered_are_known():
    assert covers(_model({}))
    assert not covers(_model({"positions": "rotary"}))
    assert not covers(_model({"positions": "shortformer"}))
