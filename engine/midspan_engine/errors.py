"""The exceptions of Midspan.

::

    MidspanError
    ├── InputError            what the user or client sent cannot be used (exit status 2)
    │   └── CheckpointError   a checkpoint folder is missing, truncated, foreign or unsupported
    ├── EngineError           the engine failed at something it should have been able to do (exit status 1)
    │   └── EngineUnavailable the engine process cannot be reached or started
    └── Cancelled             the request was withdrawn; nobody waits for an answer

Every message says what to do next.
"""

from __future__ import annotations


class MidspanError(Exception):
    """The root of all errors that Midspan raises on purpose."""


class InputError(MidspanError):
    """Says that what the user or client sent cannot be used."""


class CheckpointError(InputError):
    """Says that a checkpoint folder is missing, truncated, foreign or of an unsupported format."""


class EngineError(MidspanError):
    """Says that the engine failed at something it should have been able to do."""


class EngineUnavailable(EngineError):
    """Says that the engine process cannot be reached or started."""


class Cancelled(MidspanError):
    """Says that the request was withdrawn."""


NO_NUMBERS = "the model computes no numbers: the checkpoint is damaged, get it again"
"""What an EngineError says of weights that give NaN."""
