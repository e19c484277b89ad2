"""A circuit at every checkpoint: its measures, births and deaths, changes and overlaps."""
