"""The pages' files, read once: with an ETag each, and compressed if that makes them smaller."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

STATIC = Path(__file__).with_name("static")

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file."""

    body: bytes
    compressed: bytes
    media_type: str
    etag: str


def load_assets(folder: Path = STATIC) -> dict[str, Asset]:
    """Return the files of `folder` by name."""
    return {path.name: _load(path) for path in sorted(folder.iterdir()) if path.suffix in _TYPES}


def _load(path: Path) -> Asset:
    body = path.read_bytes()
    return Asset(
        body=body,
        compressed=gzip.compress(body, 9, mtime=0),
        media_type=_TYPES[path.suffix],
        etag=etag_of(body),
    )


def etag_of(body: bytes) -> str:
    """The ETag of a response with this body, before compression."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def has_current(request: Request, etag: str) -> bool:
    """Whether the browser has the body with this ETag."""
    return request.headers.get("if-none-match") == etag


def asset_response(request: Request, asset: Asset) -> Response:
    """Return the file, or 304 if the browser has it."""
    headers = {"ETag": asset.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if has_current(request, asset.etag):
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.compressed, media_type=asset.media_type, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)


def accepts_gzip(request: Request) -> bool:
    """Whether the browser decompresses gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")
