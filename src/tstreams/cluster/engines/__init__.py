"""Servers of others that a cluster stands on, for development and tests: started and ended from here."""
