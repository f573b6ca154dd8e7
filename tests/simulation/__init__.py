"""Simulated parts: a disk that forgets."""
