"""How long a model of the marginals task waits on the plateau, and what it knows there."""
