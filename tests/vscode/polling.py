"""Waiting for what comes about by itself, with a deadline and a sentence for when it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

DEADLINE_S = 40.0
"""Patience for one event; a busy two-core machine takes seconds for what is usually instant."""


def poll(condition: Callable[[], Any], failure: str | Callable[[], str], deadline_s: float = DEADLINE_S) -> Any:
    """Returns the first true value of `condition`; fails the test with `failure` when there is none in time."""
    value = first_value(condition, deadline_s)
    if not value:
        pytest.fail(f"{failure if isinstance(failure, str) else failure()} within {deadline_s:.0f} s")
    return value


def first_value(condition: Callable[[], Any], deadline_s: float) -> Any:
    """Returns the first true value of `condition`, or its last one when there is none in time."""
    end = time.monotonic() + deadline_s
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return value
