"""Where independent pieces of work are done: processes on this machine, or a Ray cluster."""
