"""What callers see when something goes wrong, and what the server's `on_error` hook sees.

A caller always gets a typed error: the class that the handler raised if it is a moebius error
(your own subclasses too), `HandlerFailed` for any other exception. Typed errors are answers, so
only the other exceptions reach the hook.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import moebius
from moebius import Request, Router, Server


class OutOfStock(moebius.Error):
    """An error of our own. The code is its name on the wire."""

    code = "shop.out_of_stock"


@dataclass
class Story:
    """What happened."""

    raised: dict[str, moebius.Error] = field(default_factory=dict)
    """The error that each call ended with."""
    items: list[bytes] = field(default_factory=list)
    """What the stream gave before it broke."""
    hook_saw: list[tuple[str, BaseException]] = field(default_factory=list)
    """The command and the exception of each call of the hook."""


def shop(story: Story) -> Router:
    """A shop where little works."""
    router = Router()

    @router.command("divide")
    def divide(request: Request) -> bytes:
        return b"%d" % (1 // int(request.payload))

    @router.command("buy")
    def buy(request: Request) -> bytes:
        raise OutOfStock(f"no more {request.payload.decode()}")

    @router.command("shelves")
    def shelves(_: Request) -> Iterator[bytes]:
        yield b"apples"
        yield b"pears"
        raise OSError("the third shelf fell down")

    @router.on_error
    def remember(request: Request | None, error: BaseException) -> None:
        command = "a background task" if request is None else request.command
        story.hook_saw.append((command, error))

    return router


def run() -> Story:
    """Make every mistake once."""
    story = Story()
    with (
        Server(shop(story), "tcp://127.0.0.1:0").in_thread() as server,
        moebius.connect(server.addresses[0]) as client,
    ):
        for command, payload in (("divide", b"0"), ("buy", b"bananas"), ("steal", b"")):
            try:
                client.call(command, payload)
            except moebius.Error as error:
                story.raised[command] = error
        try:
            story.items.extend(client.stream("shelves"))  # keeps what came before the error
        except moebius.Error as error:
            story.raised["shelves"] = error
    return story


def main() -> None:
    """Tell what happened."""
    story = run()
    print("The callers got:")
    for command, error in story.raised.items():
        print(f"  {command:8} {type(error).__name__} ({error.code}): {error.message}")
    print(f"Before it failed, 'shelves' had sent {story.items}.")
    print("The server's on_error hook saw:")
    for command, cause in story.hook_saw:
        print(f"  {command:8} {cause!r}")


if __name__ == "__main__":
    main()
