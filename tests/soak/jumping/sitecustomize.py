"""Python imports this before anything else: from then on the time of day is ahead by what the file SOAK_CLOCK says.

In seconds, read whenever somebody asks for the time, so that it jumps while a process runs. What counts seconds, as
`time.monotonic`, goes on evenly.
"""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path
from typing import Any

_file = Path(os.environ["SOAK_CLOCK"])
_time, _localtime, _gmtime, _ctime = time.time, time.localtime, time.gmtime, time.ctime


def _now() -> float:
    return _time() + (float(_file.read_text()) if _file.exists() else 0.0)


class _Date(datetime.date):
    @classmethod
    def today(cls) -> Any:
        return cls.fromtimestamp(_now())


class _DateTime(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls.fromtimestamp(_now(), tz)

    @classmethod
    def today(cls) -> Any:
        return cls.fromtimestamp(_now())

    @classmethod
    def utcnow(cls) -> Any:
        return cls.fromtimestamp(_now(), datetime.UTC).replace(tzinfo=None)


time.time = _now
time.time_ns = lambda: int(_now() * 1e9)
time.localtime = lambda seconds=None: _localtime(_now() if seconds is None else seconds)
time.gmtime = lambda seconds=None: _gmtime(_now() if seconds is None else seconds)
time.ctime = lambda seconds=None: _ctime(_now() if seconds is None else seconds)
datetime.date, datetime.datetime = _Date, _DateTime  # type: ignore[misc]
