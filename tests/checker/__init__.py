"""Decides from what clients did, and were told, whether the promises were kept."""
