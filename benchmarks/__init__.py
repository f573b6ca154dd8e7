"""Benchmarks against the peers one would use instead: `python -m benchmarks --help`."""
