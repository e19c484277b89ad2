"""Shared test set-up: axis names in public signatures are enforced while testing."""

import os

os.environ.setdefault("NO_COLOR", "1")

from jaxtyping import install_import_hook

# The hook has to be in place before the packages are imported, hence before any other test import.
_hook = install_import_hook(["circuits", "mechinterp", "analyses"], "beartype.beartype")

import torch  # noqa: E402

# Two workers run side by side on two cores.
torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter):
    """Prints what tests counted with `record_property("faults", ...)`, a line for each family."""
    families: dict[str, dict[str, int]] = {}
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    for name, counted in [pair for report in reports for pair in report.user_properties]:
        for family, numbers in counted.items() if name == "faults" else ():
            line = families.setdefault(family, {})
            for what, number in numbers.items():
                line[what] = line.get(what, 0) + number
    for family, numbers in families.items():
        terminalreporter.write_line(
            f"{family}: " + ", ".join(f"{number:,} {what}" for what, number in numbers.items())
        )
