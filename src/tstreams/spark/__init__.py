"""tstreams on Spark: `format("tstreams")`, a session with the right settings, and pipelines."""

from __future__ import annotations

from .pipelines import Pipeline, Place, pipeline
from .session import session
from .tracing import tracing_options

__all__ = ["Pipeline", "Place", "pipeline", "session", "tracing_options"]
