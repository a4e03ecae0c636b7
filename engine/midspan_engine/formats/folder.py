"""A checkpoint's folder: which format it is in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from midspan_engine.config import ModelConfig
from midspan_engine.errors import CheckpointError
from midspan_engine.formats.gguf_source import GgufSource
from midspan_engine.formats.safetensors_source import INDEX_FILE, SINGLE_FILE, SafetensorsSource
from midspan_engine.formats.source import Source


def open_source(folder: Path, config: ModelConfig, wanted: Mapping[str, torch.Size]) -> Source:
    """Returns the tensors of a folder. Raises CheckpointError unless they are those wanted and can be read."""
    files = sorted(file for file in folder.glob("*.gguf") if not file.name.startswith("mmproj"))  # that is for images
    if not files or (folder / SINGLE_FILE).exists() or (folder / INDEX_FILE).exists():
        return SafetensorsSource(folder, config.n_experts, wanted)
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise CheckpointError(f"{folder} holds several GGUF files ({names}): give a folder that holds one")
    return GgufSource(files[0], wanted)
