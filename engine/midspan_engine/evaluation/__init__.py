"""Infilling benchmarks: gaps cut from held-out files, filled by the engine and by baselines in the same run."""
