"""The client for threads: each call waits for its answer, or gives a future."""
