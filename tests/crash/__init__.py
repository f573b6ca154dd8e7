"""Writers and readers at a real server that is killed again and again: `python -m tests.crash --kills 50`."""
