"""Formats of checkpoints: each one a `Source` of plain or packed tensors under the checkpoint's own names."""
