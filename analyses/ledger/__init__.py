"""The ledger: every claim of both papers, the evidence that bears on it, and the verdict."""
