"""The command line: one module per command. See `main.py`."""
