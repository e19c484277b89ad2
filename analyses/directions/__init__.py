"""The forward task beside the reverse one: pairs of runs, times, ratios."""
