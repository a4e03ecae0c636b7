"""What a process knows of itself: its version and its memory."""

from __future__ import annotations

import importlib.metadata
import resource
import sys
from pathlib import Path


def version() -> str:
    """Returns the version of Midspan."""
    try:
        return importlib.metadata.version("midspan")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that was not installed
        return "0"


def rss_bytes() -> int:
    """Returns the resident memory of this process; its highest value where Linux's /proc is missing."""
    try:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
        return n_pages * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
