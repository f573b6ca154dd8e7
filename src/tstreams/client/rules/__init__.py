"""The rules of a client, without I/O: what is asked of the server, when, and what the answers mean."""
