"""Several shards in one process, over real sockets, with raw messages: what the client library is built on."""
