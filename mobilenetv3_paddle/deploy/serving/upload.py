"""A request's body, within limits of size and time."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import anyio
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

FORM_LINES = 10_000  # bytes of a form beside its file
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{1,70}")  # RFC 2046, 5.1.1
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it would write a line for each form that cannot be read


@dataclass
class Uploads:
    """Receives bodies of requests, of which ``together`` bytes may be under way and ``held`` bytes are."""

    together: int
    held: int = 0

    @contextlib.asynccontextmanager
    async def receive(self, request: Request, seconds: float, most: int, what: str) -> AsyncGenerator[bytes, None]:
        """The whole body, or the first file of a form, of at most ``most`` bytes, which count as held until the block ends;
        ``what`` is "picture" or "request". It may be empty (400), slow (408), too large (413), or too much may be held (503)."""
        taken = 0

        async def body() -> AsyncGenerator[bytes, None]:
            nonlocal taken
            async for chunk in request.stream():
                taken += len(chunk)
                self.held += len(chunk)
                if taken > most:
                    raise too_large
                if self.held > self.together:
                    raise HTTPException(503, "too many uploads: try again later", {"Retry-After": "1", "Connection": "close"})
                yield chunk

        declared = request.headers.get("content-length", "0")
        too_large = HTTPException(413, f"the {what} is larger than {most:,} bytes", {"Connection": "close"})
        form = what == "picture" and request.headers.get("content-type", "").lower().startswith("multipart/form-data")
        most += FORM_LINES if form else 0
        try:
            if int(declared) > most:
                raise too_large
            with anyio.fail_after(seconds):
                data = await _form_file(request, body(), most) if form else b"".join([chunk async for chunk in body()])
            if not data:
                bytes_or_form = "the request holds no picture: POST its bytes, or a form with a file"
                raise HTTPException(400, bytes_or_form if what == "picture" else "the request is empty")
            yield data
        except TimeoutError as error:
            raise HTTPException(408, f"the {what} did not arrive within {seconds:.3g} s", {"Connection": "close"}) from error
        except MultiPartException as error:
            raise HTTPException(400, f"the form cannot be read: {error.message}") from error
        except HTTPException as error:
            if error is too_large:
                # Read on and keep nothing: a connection that is closed while its client still sends is reset, answer and all.
                with anyio.move_on_after(seconds):
                    while (await request.receive()).get("more_body"):
                        pass
            raise
        finally:
            self.held -= taken


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
        files = [value for value in form.values() if isinstance(value, UploadFile)]
        return await files[0].read() if files else b""
    finally:
        await form.close()
