"""What an error in the engine means for the one who asked, and for all others."""

from __future__ import annotations

import logging
import traceback

from midspan_engine.errors import InputError, MidspanError
from midspan_engine.protocol import Failed

logger = logging.getLogger(__name__)


def failed(id: int, error: Exception) -> Failed:
    """Returns the answer to a fill that raised; it is final where the process is spoilt. Logs what nobody expected."""
    if isinstance(error, MidspanError):
        return Failed(id=id, message=str(error), is_input=isinstance(error, InputError))
    log_unexpected(f"fill {id}", error)
    kind = type(error).__name__
    if is_out_of_memory(error):
        message = "the engine ran out of memory, twice; free some, or use a smaller model"
        return Failed(id=id, message=message, is_final=True)
    if is_device_lost(error):
        message = f"the accelerator failed ({kind}); the engine ends, the next request starts a new one"
        return Failed(id=id, message=message, is_final=True)
    return Failed(id=id, message=f"the engine failed at this request ({kind}); its log says where")


def is_out_of_memory(error: Exception) -> bool:
    """Says whether an allocation failed, in memory or on an accelerator."""
    # torch.OutOfMemoryError is a RuntimeError for accelerators only; cuBLAS and the CPU's allocator have but words.
    is_of_torch = isinstance(error, RuntimeError) and any(
        words in str(error) for words in ("out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED")
    )
    return isinstance(error, MemoryError) or is_of_torch


def is_device_lost(error: Exception) -> bool:
    """Says whether an error of an accelerator spoils the process: every later call would fail in the same way."""
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def log_unexpected(what: str, error: Exception) -> None:
    """Logs where an error came from; its own words only at debug level, because they may quote the user's source."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s raised %s\n%s", what, type(error).__name__, trace)
    logger.debug("%s: %s", what, error)
