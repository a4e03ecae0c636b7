"""What is captured when a checkpoint is loaded onto a GPU: a pool for the KV caches and passes over it."""

from __future__ import annotations

import logging
import time

import torch

from midspan_engine.budget import free_bytes
from midspan_engine.config import InfillConfig, ModelConfig
from midspan_engine.kv_pool import DEVICE_SHARE, LEAST_ROWS, ROOM_TOKENS, KVPool, row_bytes
from midspan_engine.models.captured_passes import CapturedPasses
from midspan_engine.models.diffusion_gemma import DiffusionGemma

logger = logging.getLogger(__name__)

ROWS, SLOTS = (1, 2, 4), (32, 64, 128, 256)
"""Chosen: a canvas of the default widths takes 64 slots, several gaps or an edit up to 256; rows are alternatives, or
fills of several clients. What has more rows than these is decoded launch by launch.
"""
PROBE_ROWS, PROBE_SLOTS = 17, 64
"""Every length that is probed, on a canvas of the default widths. Source: `probe.LENGTHS`, `InfillConfig`."""
ENCODER_TOKENS = (8, 64)
"""What a key adds, and what the encoder reads of a canvas of the default widths. Chosen."""
MOST_ROWS = 64
"""Documents in the pool; chosen."""


@torch.no_grad()
def capture(model: DiffusionGemma, infill: InfillConfig) -> None:
    """Lets a model on a GPU replay its passes. Nothing is done elsewhere, and where passes cannot be captured.

    A CPU issues an operation in less time than it takes, and caches that grow are smaller there.
    """
    weight = model.embed_tokens.weight
    if weight.device.type != "cuda":
        return
    if not model.has_fixed_shapes:
        logger.info("passes are not captured: without Triton's kernels the routing decides their shapes")
        return
    began, n_tokens = time.perf_counter(), infill.prompt_tokens + ROOM_TOKENS
    room = int((free_bytes(weight.device) or 0) * DEVICE_SHARE)
    n_rows = max(LEAST_ROWS, min(MOST_ROWS, room // row_bytes(model.config, n_tokens, weight.dtype)))
    decoder = shapes(model.config, infill)
    try:
        pool = KVPool(model.config, n_rows, n_tokens, weight.dtype, weight.device)
        model.capture(CapturedPasses(model.config, pool, weight.dtype, decoder=decoder, encoder=ENCODER_TOKENS))
    except RuntimeError as error:  # torch's, out of memory too: only speed is lost
        logger.warning("passes cannot be captured (%s): each is launched by itself, which is slower", error)
        return
    logger.info(
        "captured %d passes in %.1f s; %d documents of %.2f GB have room in the pool",
        len(decoder) + len(ENCODER_TOKENS),
        time.perf_counter() - began,
        n_rows,
        pool.row_bytes / 1e9,
    )


def shapes(config: ModelConfig, infill: InfillConfig) -> list[tuple[int, int]]:
    """Returns the rows and slots of the decoder passes that a checkpoint is asked for."""
    slots = sorted({*(n for n in SLOTS if n < config.canvas_length), config.canvas_length})
    of_fills = [(n_rows, n_slots) for n_rows in ROWS for n_slots in slots]
    return [*of_fills, (PROBE_ROWS, min(PROBE_SLOTS, slots[-1]))] if infill.finds_length == "probe" else of_fills
