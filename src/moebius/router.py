"""The router: which function answers which command, and how requests of one client share a turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .errors import BadRequest
from .limits import Limits
from .workers import Pool

if TYPE_CHECKING:
    from .peer import Peer
    from .request import Request

Handler: TypeAlias = Callable[["Request"], Any]
ErrorHook: TypeAlias = Callable[["Request | None", BaseException], None]
PeerHook: TypeAlias = Callable[["Peer"], None]
BackgroundTask: TypeAlias = Callable[[Any], Any]

F = TypeVar("F", bound=Callable[..., Any])


class Strategy(Enum):
    """What a request does if another request of the same client is still running."""

    QUEUE = "queue"
    """Wait for its turn: nothing overtakes. The default."""
    REPLACE = "replace"
    """Cancel what runs and waits (it fails with `replaced`) and take its place."""
    IGNORE = "ignore"
    """Be refused with `busy`."""
    PARALLEL = "parallel"
    """Run beside it, in no order."""


STRATEGIES = {strategy.value: strategy for strategy in Strategy}


@dataclass(frozen=True, slots=True)
class Command:
    """A registered handler and how it is to be run."""

    name: str
    function: Handler
    strategy: Strategy
    strategy_fixed: bool
    one_way: bool
    pool: Pool | None


class Router:
    """A table of commands and hooks. One router can serve many servers; routers can include others."""

    def __init__(self) -> None:
        self.commands: dict[str, Command] = {}
        self.fallback: Command | None = None
        """What answers commands that nobody has registered."""
        self.background_tasks: list[BackgroundTask] = []
        self.start_hooks: list[BackgroundTask] = []
        self.stop_hooks: list[BackgroundTask] = []
        self.error_hooks: list[ErrorHook] = []
        self.connect_hooks: list[PeerHook] = []
        self.disconnect_hooks: list[PeerHook] = []

    def command(
        self,
        name: str,
        *,
        strategy: Strategy | None = None,
        one_way: bool = False,
        workers: int | Pool | None = None,
    ) -> Callable[[F], F]:
        """Register a handler: a plain function, a generator, `async def`, or an async generator.

        It is called with a `Request`. What it returns or yields are the responses: bytes-like
        objects, or tuples of them; None is no response. In generators you may also yield
        `sleep(s)`, another generator (which runs first, and whose result comes back), or an
        awaitable. A plain function may return `LATER` and answer when it likes.

        `strategy`: what a request does while another one of its client runs. If you name one, it is
        binding; if not, it is QUEUE and a caller may ask for another.
        `one_way`: callers get no response. `workers`: run it in a pool of that many processes
        (or in a `Pool` that several commands share); the function must then be importable.
        """
        if not name:
            raise BadRequest("a command needs a name")
        if len(name) > Limits().command_chars_max:
            raise BadRequest(f"the name {name[:20]!r}... is too long for a command")
        if name in self.commands:
            raise BadRequest(f"command {name!r} is registered already")
        pool = Pool(workers) if isinstance(workers, int) else workers

        def register(function: F) -> F:
            fixed = strategy is not None
            self.commands[name] = Command(
                name, function, strategy or Strategy.QUEUE, fixed, one_way, pool
            )
            return function

        return register

    def otherwise(self, function: F) -> F:
        """Let this handler answer all commands that no other is registered for; without one they fail with
        `unknown_command`. The names are in its requests."""
        self.fallback = Command("", function, Strategy.QUEUE, False, False, None)
        return function

    def background(self, function: F) -> F:
        """Run this while a server runs: it gets the `Server`, and is any kind of handler."""
        self.background_tasks.append(function)
        return function

    def on_start(self, hook: F) -> F:
        """Call this with the `Server` once it listens: `server.addresses` has the real ports."""
        self.start_hooks.append(hook)
        return hook

    def on_stop(self, hook: F) -> F:
        """Call this with the `Server` when it begins to stop: the place to end what waits for long."""
        self.stop_hooks.append(hook)
        return hook

    def on_error(self, hook: ErrorHook) -> ErrorHook:
        """Call this with (request or None, exception) when a handler or background task fails."""
        self.error_hooks.append(hook)
        return hook

    def on_connect(self, hook: PeerHook) -> PeerHook:
        """Call this with each new client, once the `authenticate` hook has accepted it."""
        self.connect_hooks.append(hook)
        return hook

    def on_disconnect(self, hook: PeerHook) -> PeerHook:
        """Call this with each client that left, was closed, or was found dead."""
        self.disconnect_hooks.append(hook)
        return hook

    def include(self, other: Router, prefix: str = "") -> None:
        """Add all commands and hooks of another router, their names prefixed."""
        for name, command in other.commands.items():
            if prefix + name in self.commands:
                raise BadRequest(f"command {prefix + name!r} is registered already")
            self.commands[prefix + name] = replace(command, name=prefix + name)
        self.background_tasks.extend(other.background_tasks)
        self.start_hooks.extend(other.start_hooks)
        self.stop_hooks.extend(other.stop_hooks)
        self.error_hooks.extend(other.error_hooks)
        self.connect_hooks.extend(other.connect_hooks)
        self.disconnect_hooks.extend(other.disconnect_hooks)
