"""What went wrong, as problem details (RFC 9457): the one way in which any request fails."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from ..errors import (
    AlreadyExists,
    BadRequest,
    Corrupt,
    Error,
    Fenced,
    InvalidState,
    NotFound,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from .resources import Problem

MEDIA_TYPE = "application/problem+json"

STATUSES: tuple[tuple[type[Error], int], ...] = (
    (NotFound, 404),
    (AlreadyExists, 409),
    (InvalidState, 409),
    (Fenced, 409),
    (TooLarge, 413),
    (BadRequest, 422),
    (Unauthorized, 403),
    (Timeout, 504),
    (Unavailable, 503),
    (Corrupt, 500),
)
"""The first class that an error is of counts."""


class Refused(Exception):
    """A request that HTTP itself refuses: a wrong method, a body that is too large, another's page.

    `headers` go out with the answer.
    """

    def __init__(
        self, status: int, code: str, detail: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers or {}


def refusal_of(error: Error) -> Refused:
    """What an error of tstreams is in HTTP."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    headers = {"Retry-After": "1"} if status == 503 else None
    return Refused(status, error.code, error.message or error.code, headers)


def problem_of(refused: Refused, path: str) -> bytes:
    """The body of the answer."""
    problem = Problem(
        type=f"urn:tstreams:problem:{refused.code}",
        title=HTTPStatus(refused.status).phrase,
        status=refused.status,
        detail=refused.detail,
        instance=path,
        code=refused.code,
    )
    return msgspec.json.encode(problem)
