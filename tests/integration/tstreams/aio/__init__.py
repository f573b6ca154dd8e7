"""What is special to the asyncio face."""
