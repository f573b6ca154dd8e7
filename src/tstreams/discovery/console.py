"""The files of the console, as they are packaged: read once, served from memory, each with its entity tag."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    media_type: str
    tag: str


class Console:
    """What is under `/`: files by their paths. `/` itself is `index.html`."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        folder = files(__package__).joinpath("console")
        if folder.is_dir():
            self._read(folder, "")
        if INDEX in self._files:
            self._files[""] = self._files[INDEX]

    @property
    def paths(self) -> list[str]:
        """Of all files, without the `/` before them."""
        return sorted(self._files)

    def has(self, raw_path: bytes) -> bool:
        """Whether there is a file at this path."""
        return _name(raw_path) in self._files

    def respond(self, request: Request) -> Response:
        """The file, or 304 for one that the browser has already."""
        found = self._files[_name(request.scope.get("raw_path") or b"/")]
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        given = request.headers.get("if-none-match", "")
        if found.tag in [part.strip().removeprefix("W/") for part in given.split(",")]:
            return Response(status_code=304, headers=headers)
        headers["Content-Type"] = found.media_type
        return Response(found.data, headers=headers)

    def _read(self, folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            path = prefix + entry.name
            if entry.is_dir():
                if not entry.name.startswith((".", "__")):
                    self._read(entry, f"{path}/")
            elif not entry.name.endswith((".py", ".pyc")):
                data = entry.read_bytes()
                tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
                self._files[path] = _File(data, _type_of(path), tag)


def _type_of(path: str) -> str:
    suffix = "." + path.rpartition(".")[2]
    return _TYPES.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"


def _name(raw_path: bytes) -> str:
    return unquote(raw_path.decode("ascii", "replace")).removeprefix("/")
