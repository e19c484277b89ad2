"""The questions: one file each, from runs to a table, from the table to a figure."""
