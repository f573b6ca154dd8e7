"""What `format("tstreams")` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..errors import BadRequest, NotFound
from . import connections
from .columns import Layout
from .offsets import Map
from .options import ReadOptions, WriteOptions
from .reading import BatchReader, StreamReader
from .writing import BatchWriter, StreamWriter


class Source:
    """Streams as a source and as a sink, for streaming queries and for batch jobs, exactly once."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    @cached_property
    def _reading(self) -> ReadOptions:
        return ReadOptions.parse(self._options)

    @cached_property
    def _layout(self) -> Layout:
        """The columns of a read. Streams that are read together have the same."""
        options = self._reading
        ts = connections.client(options.client)
        streams = list(Map(ts, options.streams).streams().values())
        if not streams:
            raise NotFound(f"no stream has a name that begins with {options.streams.prefix!r}")
        first = streams[0]
        for other in streams:
            if other.schema != first.schema:
                raise BadRequest(
                    f"streams {first.name!r} and {other.name!r} have different schemas: read each alone"
                )
        return Layout.of(first.schema, options.metadata, options.headers)

    def schema(self) -> StructType:
        """The columns of a read."""
        return from_arrow_schema(self._layout.schema)

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`; the schema is that of the plan, which may be older than the stream's."""
        return BatchReader(self._reading, self._layout.only(schema.names))

    def stream_reader(self, schema: StructType) -> StreamReader:
        """For `spark.readStream`."""
        return StreamReader(self._reading, self._layout.only(schema.names))

    def writer(self, overwrite: bool) -> BatchWriter:
        """For `df.write`."""
        return BatchWriter(WriteOptions.parse(self._options), overwrite)

    def stream_writer(self, overwrite: bool = False) -> StreamWriter:
        """For `df.writeStream`."""
        return StreamWriter(WriteOptions.parse(self._options), overwrite)
