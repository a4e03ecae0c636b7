"""Which checkpoint the tests of the engine load."""

from __future__ import annotations

import os
from pathlib import Path

from midspan_engine.config import embedded_checkpoint

CHECKPOINT = Path(os.environ.get("MIDSPAN_CHECKPOINT") or embedded_checkpoint())
"""The one that the front end would have served too."""
