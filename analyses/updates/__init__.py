"""Updates of the weights: sums over a run, cosines, and what they are worth by chance."""
