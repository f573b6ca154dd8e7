"""Every decoder, fed with bytes that nobody meant. `targets.py` lists them, `__main__.py` runs atheris."""
