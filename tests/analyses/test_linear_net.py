import json
import math

import pytest
import torch

from analyses.command import main
from analyses.linear_net import least_loss


def test_a_table_that_z_alone_decides_is_solved():
    # Every B has the same answers in the same slots, so that v[z, character] says it all.
    assert least_loss(torch.arange(5).repeat(7, 1)) < 1e-3


def test_two_slots_that_cross_cannot_be_told_apart():
    # B 0 has (a, b) and B 1 has (b, a): what z adds for one it takes from the other. By hand the
    # best is to guess, ln 2.
    crossed = torch.tensor([[0, 1], [1, 0]])
    assert least_loss(crossed) == pytest.approx(math.log(2), abs=1e-6)


def test_random_additive_models_do_worse():
    generator = torch.Generator().manual_seed(0)
    first = torch.stack([torch.randperm(8, generator=generator)[:4] for _ in range(40)])
    best = least_loss(first)
    for scale in (0.05, 0.5):
        for _ in range(20):
            b = scale * torch.randn(40, 4, generator=generator, dtype=torch.float64)
            z = scale * torch.randn(4, 8, generator=generator, dtype=torch.float64)
            logits = b[:, None, :] + z[:, first].transpose(0, 1)
            tried = -logits.log_softmax(-1).diagonal(dim1=1, dim2=2).mean()
            assert tried > best
    assert best < math.log(4)


def test_the_answer_says_how_near_to_ln_k(tmp_path, capsys):
    argv = ["linear-net", "--k", "4", "--n-b", "60", "--seeds", "0", "1", "--json"]
    assert main([*argv, str(tmp_path / "linear-net.json")]) == 0
    rows = json.loads((tmp_path / "linear-net.json").read_text())["tables"]["models"]
    assert [row["seed"] for row in rows] == [0, 1]
    assert all(0.5 < row["candidate_loss"] / math.log(4) < 1 for row in rows)
    assert f"{rows[0]['candidate_loss']:.4f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [(["--k", "1"], "k is 1; candidates need at least 2"), (["--seeds", "3", "3"], "each once")],
)
def test_bad_options_are_refused(argv, said, capsys):
    assert main(["linear-net", *argv]) == 2
    assert said in capsys.readouterr().err
