"""What a request does while another of the same client is still running: the four strategies.

Three clients send three messages each, all at once, to a handler that takes a while. The strategy
decides within each client; what one client does never affects another.
"""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import moebius
from moebius import Request, Router, Server, Strategy, aio

CLIENTS = ("Ann", "Bob", "Eve")
MESSAGES = ("first", "second", "third")
WORK_S = 0.2

router = Router()


def work(request: Request) -> Generator[Any, Any, bytes]:
    """Take a while; meanwhile note how many of this client's requests run at once."""
    tags = request.client.tags
    tags["now"] = tags.get("now", 0) + 1
    tags["most"] = max(tags.get("most", 0), tags["now"])
    try:
        yield moebius.sleep(WORK_S)
        return request.payload + b" done"
    finally:
        tags["now"] -= 1


for each in Strategy:
    router.command(each.value, strategy=each)(work)


@router.command("most")
def most(request: Request) -> bytes:
    """How many requests of this client ran at the same time, at most."""
    return str(request.client.tags["most"]).encode()


@dataclass
class Story:
    """What happened in one round."""

    strategies: dict[str, Strategy]
    """By client: the strategy of the command that it called."""
    outcomes: dict[str, list[str]] = field(default_factory=dict)
    """By client: for each of its messages the answer, or the name of the error."""
    order: dict[str, list[str]] = field(default_factory=dict)
    """By client: its messages in the order in which they were answered or refused."""
    most_at_once: dict[str, int] = field(default_factory=dict)
    """By client: how many of its requests ran at the same time."""


def run() -> list[Story]:
    """One round per strategy, and one in which each client uses another."""
    rounds = [dict.fromkeys(CLIENTS, strategy) for strategy in Strategy]
    mixed = dict(zip(CLIENTS, Strategy, strict=False))
    return asyncio.run(play([*rounds, mixed]))


async def play(rounds: list[dict[str, Strategy]]) -> list[Story]:
    stories = [Story(strategies) for strategies in rounds]
    async with Server(router, "tcp://127.0.0.1:0") as server:
        for story in stories:
            url = server.addresses[0]
            await asyncio.gather(*(send_all(url, name, story) for name in CLIENTS))
    return stories


async def send_all(url: str, name: str, story: Story) -> None:
    """One client sends all its messages without waiting for answers."""
    command = story.strategies[name].value
    story.order[name] = []

    async def send(client: aio.Client, message: str) -> str:
        try:
            outcome = (await client.call(command, message.encode())).decode()
        except moebius.Error as error:
            outcome = type(error).__name__
        story.order[name].append(message)
        return outcome

    async with aio.connect(url, name=name) as client:
        outcomes = await asyncio.gather(*(send(client, message) for message in MESSAGES))
        story.outcomes[name] = outcomes
        story.most_at_once[name] = int(await client.call("most"))


def main() -> None:
    """Tell what happened."""
    print(f"Each client sent at once: {', '.join(MESSAGES)}")
    for story in run():
        print()
        for name in CLIENTS:
            told = "".join(f"{outcome:14}" for outcome in story.outcomes[name])
            at_once = story.most_at_once[name]
            print(f"{name}  {story.strategies[name].name:9} {told} running at once: {at_once}")


if __name__ == "__main__":
    main()
