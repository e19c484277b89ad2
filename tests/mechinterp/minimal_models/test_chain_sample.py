import pytest
import torch

from circuits.errors import InputError
from mechinterp.chains import draw_chains
from mechinterp.minimal_models import chain_sample
from mechinterp.minimal_models.chain_sample import ChainSample, draw_sample


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_next_row_is_the_chain_s_row_of_the_last_state():
    sample = draw_sample(5, 3, 12, seeded())
    chains = draw_chains(5, 3, 1.0, seeded())
    for i in range(5):
        torch.testing.assert_close(sample.next_row[i], chains[i, sample.tokens[i, -1]])
    assert (len(sample), sample.length, sample.n_states) == (5, 12, 3)


def test_entropy_of_known_rows():
    rows = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    sample = ChainSample(torch.zeros(2, 4, dtype=torch.long), rows)
    assert sample.entropy == pytest.approx(0.5 * 0.6931471805599453)


def test_last_keeps_the_end_and_the_question():
    sample = draw_sample(4, 3, 10, seeded())
    short = sample.last(3)
    assert short.tokens.tolist() == sample.tokens[:, 7:].tolist()
    assert short.next_row is sample.next_row


def test_pieces_hold_every_sequence_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chain_sample, "ELEMENTS", 35)
    sample = draw_sample(8, 3, 10, seeded())
    pieces = list(sample.pieces())
    assert [len(piece) for piece in pieces] == [3, 3, 2]
    assert torch.cat([piece.tokens for piece in pieces]).tolist() == sample.tokens.tolist()


def test_errors_say_what_is_allowed():
    with pytest.raises(InputError, match=r"length is 11; this sample has .* 10 states.* 2\.\.10"):
        draw_sample(4, 3, 10, seeded()).last(11)
    with pytest.raises(InputError, match="n_states is 1; it has to be at least 2"):
        draw_sample(4, 1, 10, seeded())
