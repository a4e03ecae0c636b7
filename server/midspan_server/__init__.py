"""The language server and command line of Midspan: documents, context, completion. Never imports torch."""

from __future__ import annotations
