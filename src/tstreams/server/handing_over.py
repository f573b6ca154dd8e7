"""The command by which nodes of a cluster ask each other for shards."""

from __future__ import annotations

from collections.abc import Callable

from moebius import Request, Router, Strategy

from ..errors import Error
from ..protocol import HandedOver, HandOver, encode
from .gate import Gate
from .kin import KIN
from .seat import Seat
from .wire import wire_error


def register(router: Router, gate: Gate, shards: int, seat: Callable[[int], Seat]) -> None:
    """Answer those who should lead what this node leads. It holds up nothing else of the node that asks."""
    read = gate.kin_reader(HandOver)

    def command(number: int) -> None:
        async def hand_over(request: Request) -> bytes:
            message = read(request)
            try:
                place = await seat(number).hand_over(message.node, message.epoch)
            except Error as error:
                raise wire_error(error) from None
            return encode(HandedOver(place))

        name = f"{number}:{KIN}{HandOver.__name__}"
        router.command(name, strategy=Strategy.PARALLEL)(hand_over)

    for number in range(shards):
        command(number)
