"""The laboratory: tasks, models, training, runs on disk, and the commands."""
