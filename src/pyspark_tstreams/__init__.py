"""Lets Spark find `format("tstreams")` by itself: it looks for packages whose names begin with `pyspark_`.

Spark imports this in every process that asks for any Python data source: so nothing is imported here that
is not there already, and the work is left to `tstreams.spark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from tstreams.spark.source import Source


class DefaultSource(DataSource):
    """Streams as a source and as a sink: see `tstreams.spark.source`."""

    @classmethod
    def name(cls) -> str:
        """What goes into `format(...)`."""
        return "tstreams"

    @property
    def _source(self) -> Source:
        from tstreams.spark.source import Source

        return Source(self.options)

    def schema(self) -> Any:
        """The columns of a read."""
        return self._source.schema()

    def reader(self, schema: Any) -> Any:
        """For `spark.read`."""
        return self._source.reader(schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        """For `spark.readStream`."""
        return self._source.stream_reader(schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """For `df.write`."""
        return self._source.writer(overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        """For `df.writeStream`."""
        return self._source.stream_writer(overwrite)
