"""The asyncio face: the rules, run on an event loop."""
