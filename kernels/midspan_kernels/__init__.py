"""Midspan's numeric operations: one file per operation, its readable torch reference first."""
