"""tstreams on Spark: `format("tstreams")` as source and sink, and a session with the right settings."""

from __future__ import annotations

from .session import session

__all__ = ["session"]
