"""Parts of the answers about the reduced models of the Markov-chain task."""
