"""The real SDK of OpenTelemetry, with an exporter that keeps spans in memory."""

from __future__ import annotations

from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from .conftest import eventually


class Spans:
    """All spans that have ended in this process."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter
        self.tracer = trace.get_tracer("test")

    def clear(self) -> None:
        self._exporter.clear()

    def named(self, name: str) -> list[ReadableSpan]:
        return [it for it in self._exporter.get_finished_spans() if it.name == name]

    def wait(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """So many of a name, and no more: they may end on other threads."""
        found: list[ReadableSpan] = eventually(
            lambda: len(them := self.named(name)) >= count and them
        )
        assert len(found) == count
        return found

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.wait(name)
        return found


@cache
def record() -> Spans:
    """Begin to keep spans: the provider of a process can be set once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return Spans(exporter)


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def links_of(span: ReadableSpan) -> list[int]:
    return [it.context.span_id for it in span.links]


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return parent_of(child) == id_of(parent) and trace_of(child) == trace_of(parent)
