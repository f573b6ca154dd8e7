"""The text of /metrics, for Prometheus: what the storage server has measured last, and the front door itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..protocol import Measured, StreamTraffic
from ..version import __version__
from .described import describe

if TYPE_CHECKING:
    from .front import Front

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "tstreams_"

_TRAFFIC = (
    ("transactions", "transactions"),
    ("items", "items"),
    ("written_bytes", "bytes"),
    ("transactions_read", "transactions_read"),
    ("items_read", "items_read"),
    ("read_bytes", "bytes_read"),
)
"""Of the busiest streams: the name of the counter, and the field of `StreamTraffic`."""


def text(front: Front) -> bytes:
    """All metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(front))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, front: Front) -> None:
        self._front = front

    def collect(self) -> Iterable[Metric]:
        """Everything there is."""
        measured = self._front.sampler.measured
        up = GaugeMetricFamily(PREFIX + "up", describe("up"))
        up.add_metric([], 0 if measured is None else 1)
        yield up
        info = GaugeMetricFamily(PREFIX + "build_info", describe("build_info"), labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        if measured is not None:
            yield from _server(measured)
            yield from _streams(measured.busiest)
        yield from self._lags()
        yield from self._front_door()

    def _lags(self) -> Iterator[Metric]:
        labels = ["stream", "consumer"]
        latest = self._front.lags.latest()
        for name, field in (
            ("transactions", "transactions"),
            ("items", "items"),
            ("seconds", "seconds"),
        ):
            family = GaugeMetricFamily(
                f"{PREFIX}consumer_lag_{name}", describe(f"consumer_lag_{name}"), labels=labels
            )
            for it in latest:
                family.add_metric([it.stream, it.name], getattr(it.lag, field))
            yield family

    def _front_door(self) -> Iterator[Metric]:
        application = self._front.application
        if application is None:
            return
        requests = CounterMetricFamily(
            PREFIX + "http_requests", describe("http_requests_total"), labels=["route", "status"]
        )
        for (route, status), count in sorted(application.counts.items()):
            requests.add_metric([route, str(status)], count)
        yield requests
        seconds = HistogramMetricFamily(
            PREFIX + "http_request_seconds", describe("http_request_seconds"), labels=["route"]
        )
        for route, took in sorted(application.times.items()):
            seconds.add_metric([route], took.buckets(), took.sum_s)
        yield seconds
        listeners = GaugeMetricFamily(PREFIX + "http_event_clients", describe("http_event_clients"))
        listeners.add_metric([], self._front.event_clients)
        yield listeners
        catalogue = GaugeMetricFamily(PREFIX + "catalogue_streams", describe("catalogue_streams"))
        catalogue.add_metric([], len(self._front.catalogue))
        yield catalogue
        marks = GaugeMetricFamily(PREFIX + "milestones", describe("milestones"))
        marks.add_metric([], len(self._front.milestones))
        yield marks


def _server(measured: Measured) -> Iterator[Metric]:
    for name, count in measured.counters.items():
        counter = CounterMetricFamily(PREFIX + name.removesuffix("_total"), describe(name))
        counter.add_metric([], count)
        yield counter
    for name, value in measured.gauges.items():
        gauge = GaugeMetricFamily(PREFIX + name, describe(name))
        gauge.add_metric([], value)
        yield gauge
    for it in measured.histograms:
        buckets = []
        total = 0
        for bound, count in zip([*it.bounds, float("inf")], it.counts, strict=True):
            total += count
            buckets.append((_bound(bound), total))
        histogram = HistogramMetricFamily(PREFIX + it.name, describe(it.name))
        histogram.add_metric([], buckets, it.sum)
        yield histogram


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))


def _streams(busiest: list[StreamTraffic]) -> Iterator[Metric]:
    for name, field in _TRAFFIC:
        family = CounterMetricFamily(
            f"{PREFIX}stream_{name}", describe(f"stream_{name}_total"), labels=["stream"]
        )
        for it in busiest:
            family.add_metric([it.name], getattr(it, field))
        yield family
