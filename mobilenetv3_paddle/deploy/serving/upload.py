"""A request's body, within limits of size and time."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import anyio
from fastapi import HTTPException, Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

FORM_LINES = 10_000  # bytes of a form beside its file
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{1,70}")  # RFC 2046, 5.1.1
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it would write a line for each form that cannot be read


@dataclass
class Uploads:
    """Receives bodies of requests.

    Attributes:
        together: bytes of all that are under way.
        held: bytes that are held now.
    """

    together: int
    held: int = 0

    @contextlib.asynccontextmanager
    async def receive(self, request: Request, seconds: float, most: int, what: str) -> AsyncGenerator[bytes, None]:
        """The whole body, or the first file of a form; its bytes count as held until the block ends.

        Args:
            request: whose body it is.
            seconds: it may take.
            most: bytes of the body, or of the form's file.
            what: "picture" or "request", for messages.

        Raises:
            HTTPException: it is empty (400), too slow (408), too large (413), or too much is held (503).
        """
        taken = 0

        async def body() -> AsyncGenerator[bytes, None]:
            nonlocal taken
            async for chunk in request.stream():
                taken += len(chunk)
                self.held += len(chunk)
                if taken > most:
                    await _thrown_away(request, seconds)
                    raise too_large
                if self.held > self.together:
                    raise HTTPException(503, "too many uploads: try again later", {"Retry-After": "1", "Connection": "close"})
                yield chunk

        try:
            declared = int(request.headers.get("content-length", 0))
        except ValueError as error:
            raise HTTPException(400, "Content-Length is no number") from error
        too_large = HTTPException(413, f"the {what} is larger than {most:,} bytes", {"Connection": "close"})
        form = what == "picture" and request.headers.get("content-type", "").lower().startswith("multipart/form-data")
        most += FORM_LINES if form else 0
        if declared > most:
            await _thrown_away(request, seconds)
            raise too_large
        try:
            with anyio.fail_after(seconds):
                data = await (_form_file(request, body(), most) if form else _joined(body()))
            if not data:
                bytes_or_form = "the request holds no picture: POST its bytes, or a form with a file"
                raise HTTPException(400, bytes_or_form if what == "picture" else "the request is empty")
            yield data
        except TimeoutError as error:
            raise HTTPException(408, f"the {what} did not arrive within {seconds:.3g} s", {"Connection": "close"}) from error
        except MultiPartException as error:
            raise HTTPException(400, f"the form cannot be read: {error.message}") from error
        finally:
            self.held -= taken


async def _thrown_away(request: Request, seconds: float) -> None:
    """Read on without keeping anything: a connection that is closed while its client still sends is reset, answer and all."""

    with anyio.move_on_after(seconds):
        while (await request.receive()).get("more_body"):
            pass


async def _joined(body: AsyncGenerator[bytes, None]) -> bytes:
    return b"".join([chunk async for chunk in body])


async def _form_file(request: Request, body: AsyncGenerator[bytes, None], most: int) -> bytes:
    _, options = parse_options_header(request.headers["content-type"])
    boundary = options.get(b"boundary", b"")
    if not _BOUNDARY.fullmatch(boundary):
        raise MultiPartException("it needs a boundary of at most 70 letters and digits")
    # The parser takes a charset from its headers; some charsets take quadratic time, so the client's is not passed on.
    plain = Headers(raw=[(b"content-type", b'multipart/form-data; boundary="%s"' % boundary)])
    parser = MultiPartParser(plain, body, max_files=1, max_fields=10, max_part_size=FORM_LINES)
    parser.spool_max_size = most  # in memory: its size is bounded
    form = await parser.parse()
    try:
        for value in form.values():
            if not isinstance(value, str):
                return await value.read()
        return b""
    finally:
        await form.close()
