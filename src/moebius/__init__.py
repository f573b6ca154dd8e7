"""moebius: a light message server. Plain functions and generators answer requests over TCP and ZeroMQ."""

from . import aio
from .client.blocking import Client, Stream, connect
from .client.states import State
from .drive import sleep
from .errors import (
    BadRequest,
    Busy,
    Cancelled,
    Closed,
    DeadlineExceeded,
    Disconnected,
    Error,
    HandlerFailed,
    Overloaded,
    ProtocolError,
    RemoteError,
    Replaced,
    Stopping,
    TooLarge,
    Unauthorized,
    UnknownCommand,
    UnknownStrategy,
    WorkerDied,
)
from .limits import Limits
from .messages import Payload
from .peer import Peer
from .peers import Peers
from .request import LATER, Request
from .router import Router, Strategy
from .security import CurveClient, CurveServer, curve_keypair
from .server import Server
from .statistics import ClientStatistics, Counts, ServerStatistics, StopReport
from .transports.link import Credentials
from .workers import Pool, WorkerRequest

__all__ = [
    "LATER",
    "BadRequest",
    "Busy",
    "Cancelled",
    "Client",
    "ClientStatistics",
    "Closed",
    "Counts",
    "Credentials",
    "CurveClient",
    "CurveServer",
    "DeadlineExceeded",
    "Disconnected",
    "Error",
    "HandlerFailed",
    "Limits",
    "Overloaded",
    "Payload",
    "Peer",
    "Peers",
    "Pool",
    "ProtocolError",
    "RemoteError",
    "Replaced",
    "Request",
    "Router",
    "Server",
    "ServerStatistics",
    "State",
    "StopReport",
    "Stopping",
    "Strategy",
    "Stream",
    "TooLarge",
    "Unauthorized",
    "UnknownCommand",
    "UnknownStrategy",
    "WorkerDied",
    "WorkerRequest",
    "aio",
    "connect",
    "curve_keypair",
    "sleep",
]
