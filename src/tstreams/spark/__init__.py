"""tstreams on Spark: `format("tstreams")`, a session with the right settings, and pipelines."""

from __future__ import annotations

from .pipelines import Pipeline, Place, pipeline
from .session import session

__all__ = ["Pipeline", "Place", "pipeline", "session"]
