"""The fast writer of tensors against the library's own."""

import pytest
import safetensors.torch
import torch

from circuits.errors import InputError
from mechinterp.runs.tensor_bytes import DTYPES, encode


def test_equals_the_library_byte_for_byte_for_every_type():
    tensors = {
        f"{kind}.{shape}": torch.ones(shape).to(kind)
        for kind in DTYPES
        for shape in ((), (3,), (2, 3), (0, 4))
    }
    assert encode(tensors) == safetensors.torch.save(tensors)
    assert encode({}) == safetensors.torch.save({})


def test_keeps_every_bit_of_values_that_compare_strangely():
    odd = torch.tensor([float("nan"), -0.0, float("inf"), 1e-45])
    back = safetensors.torch.load(encode({"odd": odd, "ключ": odd[1:]}))
    assert torch.equal(back["odd"].view(torch.int32), odd.view(torch.int32))
    assert torch.equal(back["ключ"].view(torch.int32), odd[1:].view(torch.int32))


def test_takes_views_and_ties_which_the_library_refuses():
    tied = torch.arange(6.0).reshape(2, 3).requires_grad_()
    with pytest.raises(RuntimeError, match="share"):
        safetensors.torch.save({"a": tied, "b": tied})
    back = safetensors.torch.load(encode({"a": tied, "b": tied.T, "c": tied[:1].expand(4, 3)}))
    assert torch.equal(back["a"], tied)
    assert torch.equal(back["b"], tied.T)
    assert torch.equal(back["c"], tied[:1].expand(4, 3))


def test_refuses_a_type_the_format_does_not_know():
    with pytest.raises(InputError, match=r"w is torch.complex64; stored are I64, F64"):
        encode({"w": torch.zeros(2, dtype=torch.complex64)})
