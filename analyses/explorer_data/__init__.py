"""What the explorer shows of a run, as plain tables, and what gathers it."""
