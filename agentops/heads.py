"""What the web server keeps of a request before anybody is asked about it.

Guarantees: what is no body, the head, the sizes of chunks and what follows them, takes a bounded
number of bytes per connection; one that sends more is closed. uvicorn's parser has no such bound:
one endless header would fill the process.

Does not limit how slowly a head may come, nor how many connections there are; a proxy does.
Complete heads are measured, and answered in words, in `limits`.
"""

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# More than one reading of the socket (256 KiB), in which a request's body and the next request's
# head may stand together.
LONGEST: Final = 512 * 1024
REFUSAL: Final = b"\r\n".join(
    (
        b"HTTP/1.1 431 Request Header Fields Too Large",
        b"connection: close",
        b"content-length: 0",
        b"\r\n",
    )
)


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol, for `--http agentops.heads:BoundedHeads`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._beside = self._newest = 0

    def data_received(self, data: bytes) -> None:
        self._newest = len(data)
        self._beside += len(data)
        super().data_received(data)
        if self._beside > LONGEST and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(REFUSAL)
            self.transport.close()

    def on_message_begin(self) -> None:
        # How much of the newest data belongs to the request before is not known, and little.
        self._beside = self._newest
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._beside -= len(body)
        super().on_body(body)
