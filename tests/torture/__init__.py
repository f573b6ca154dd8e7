"""Fault campaigns on real processes: `python -m tests.torture --minutes 30 --json`"""
