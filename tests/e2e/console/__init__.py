"""The console, driven in a real browser in front of a real server under load."""
