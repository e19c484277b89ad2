"""Shared test set-up: axis names in public signatures are enforced while testing."""

import os

os.environ.setdefault("NO_COLOR", "1")

from jaxtyping import install_import_hook

# The hook has to be in place before the packages are imported, hence before any other test import.
_hook = install_import_hook(["circuits", "mechinterp", "analyses"], "beartype.beartype")

import torch  # noqa: E402

# Two workers run side by side on two cores.
torch.set_num_threads(1)
