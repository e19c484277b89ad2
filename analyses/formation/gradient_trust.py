"""From which step on do a gradient method's guesses agree with the exact effects?"""

import pandas as pd

from analyses.rows import kept, numbers

TRUSTED = 0.9
"""Share of what exact effects of other examples attain that a method has to attain as well."""

CRITERION = (
    f"at this and every later checkpoint, rank correlation and top-k overlap are at least {TRUSTED}"
    " of those between two halves of the examples (exact effects both), and above 95 % of shuffles"
)


def trust(agreement: pd.DataFrame) -> pd.DataFrame:
    """When does each gradient method become as good as exact effects of other examples?

    The rank correlation of all edges never comes near 1, not even between exact effects of two
    halves of the examples, as most edges do nothing but noise. So a method is held against that.

    Args:
        agreement: `step`, `method`, `spearman`, `overlap`, and of both the `..._chance` that 95 %
            of shuffles stay below and the `..._ceiling` that two halves attain.

    Returns:
        One row a method: `method`, `step` from which it is trustworthy by `CRITERION` (missing if
        never), `share`, the share of checkpoints at which it is, and the `criterion`.
    """
    rows = []
    for method in agreement["method"].unique():
        one = kept(agreement, (agreement["method"] == method).to_numpy()).sort_values("step")
        good = True
        for measure in ("spearman", "overlap"):
            value, ceiling = numbers(one, measure), numbers(one, f"{measure}_ceiling")
            good = good & (value >= TRUSTED * ceiling) & (value > numbers(one, f"{measure}_chance"))
        held = good[::-1].cumprod()[::-1].astype(bool)
        step = int(one["step"].to_numpy()[held][0]) if held.any() else None
        rows.append((method, step, float(good.mean()), CRITERION))
    table = pd.DataFrame(rows, columns=["method", "step", "share", "criterion"])
    return table.astype({"step": "Int64"})
