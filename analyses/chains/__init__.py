"""How far a model of Markov chains is from every Bayes predictor, and when that changes."""
