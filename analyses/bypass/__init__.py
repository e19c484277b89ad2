"""Whether runs pass through 2-Gen or bypass it, and at which number of chains that turns."""
