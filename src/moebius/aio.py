"""The asyncio client: `async with moebius.aio.connect(url) as client: await client.call(...)`."""

from .client.asynchronous import Client, Stream

connect = Client
"""Open with `async with`, or `await connect(url).open()`."""

__all__ = ["Client", "Stream", "connect"]
