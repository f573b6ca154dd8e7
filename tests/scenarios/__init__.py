"""Scenarios that anyone can read: commands in, states out. `README.txt` says how they are written."""
