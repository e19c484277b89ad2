"""Whole groups of answers: which members are right, and whether they come together."""
