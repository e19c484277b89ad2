"""How many bytes of tensors were alive at once, on any device and without the operating system."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Peak(TorchDispatchMode):
    """Counts the bytes of all storages that are alive, made while the mode is on."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.seen = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage):
        key = storage._cdata
        if key in self.seen:
            return
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        self.seen[key] = weakref.finalize(storage, self._free, key, size)

    def _free(self, key, size):
        self.now -= size
        self.seen.pop(key, None)


def peak_of(function: Callable[[], Any]) -> int:
    """Peak bytes of tensors that a call makes or touches."""
    with Peak() as meter:
        function()
    return meter.peak
