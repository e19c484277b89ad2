import torch

from mechinterp.config import ModelConfig
from mechinterp.gradient_noise import add_noise
from mechinterp.model import build_model

MODEL = ModelConfig(n_layers=1, n_heads=2, d_model=32, n_ctx=8)


def _gradients(ratio, seed=0, step=0):
    model = build_model(MODEL, 10)
    for i, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, 0.01 * (i + 1))
    add_noise(model, ratio, seed, step)
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_the_noise_has_the_norm_asked_for_and_no_direction():
    clean = _gradients(0.0)
    for ratio in (0.5, 3.0):
        noise = _gradients(ratio) - clean
        torch.testing.assert_close(
            noise.norm() / clean.norm(), torch.tensor(ratio), rtol=0.03, atol=0
        )
        # Along the gradient lies the share that chance gives one direction of many.
        along = (noise @ clean) / clean.norm() ** 2
        assert abs(along) < 4 * ratio / len(clean) ** 0.5


def test_the_noise_depends_on_seed_and_step_alone():
    assert torch.equal(_gradients(1.0, 3, 7), _gradients(1.0, 3, 7))
    assert not torch.equal(_gradients(1.0, 3, 7), _gradients(1.0, 3, 8))
    assert not torch.equal(_gradients(1.0, 3, 7), _gradients(1.0, 4, 7))
