"""What operators may do: put a reader elsewhere, and cancel what others have open."""

from __future__ import annotations

from ..errors import BadRequest, Fenced, InvalidState, TooLarge
from ..limits import COMMIT_MEMBERS_MAX
from ..model import check_name
from ..protocol import EndTransactions, ResetReader
from .facts import READER
from .records import AnyRecord, Overruled, ReaderReset
from .rules import Rules
from .state import State
from .waits import InDoubt


class Overruling:
    """Decides on requests of operators. Nothing here changes the state."""

    def __init__(self, state: State, rules: Rules) -> None:
        self._state = state
        self._rules = rules
        rules.register(ResetReader, self._reset_reader)
        rules.register(EndTransactions, self._end)

    def _reset_reader(self, now_ms: int, request: ResetReader, items: int) -> AnyRecord:
        reader = check_name(request.reader, READER)
        stream = self._state.stream_named(request.stream)
        if len(request.positions) > COMMIT_MEMBERS_MAX:
            raise TooLarge(
                f"{len(request.positions)} positions in one request are over {COMMIT_MEMBERS_MAX}"
            )
        partitions = {partition for partition, _ in request.positions}
        if len(partitions) < len(request.positions):
            raise BadRequest("a partition stands twice in one request")
        doubts = [
            group
            for partition in partitions
            if (group := self._state.groups.positions.get((stream.id, reader, partition)))
        ]
        if doubts:
            raise InDoubt(dict.fromkeys(doubts), InvalidState.code)
        for partition, transaction in request.positions:
            self._rules.check_partition(stream.id, partition)
            if transaction > self._state.last_id:
                raise BadRequest(
                    f"no transaction {transaction} was opened yet: the last is {self._state.last_id}, and a "
                    "reader that is to see only what is new stands there"
                )
        holder = self._state.holder(READER, stream.id, reader)
        if holder and not request.force:
            raise InvalidState(
                f"reader {reader!r} of stream {stream.name!r} is held by agent {holder}: close that one, or "
                "force it, which fences that one"
            )
        if holder and (doubts := self._state.groups.of_agents([holder])):
            raise InDoubt(doubts, Fenced.code)
        return ReaderReset(
            request.session, request.sequence, stream.id, reader, request.positions, holder
        )

    def _end(self, now_ms: int, request: EndTransactions, items: int) -> AnyRecord:
        self._rules.check_members([], request.transactions, 0)
        known = [it for it in request.transactions if it in self._state.open]
        if doubts := self._state.groups_of(known):
            raise InDoubt(doubts, InvalidState.code)
        ids = [self._rules.open_transaction(now_ms, it).id for it in request.transactions]
        return Overruled(request.session, request.sequence, ids)
