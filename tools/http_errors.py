"""How far a request had come when an HTTP library raised.

Guarantees: knows the errors of httpx2, httpx, requests and urllib3 by the names of their
classes, so none of them is imported; looks inside wrappers, and behind redirects and
retries that the library made on its own: a failed connection says `NOTHING` only if no
earlier hop or try of the same call may have left.
Does not know other libraries: their errors are `None`, read by the caller as unknown.
"""

import ssl
from collections.abc import Iterator
from enum import Enum, auto
from types import FrameType
from typing import Any


class Sent(Enum):
    """What is known to have left when the error was raised."""

    NOTHING = auto()
    EARLIER = auto()  # nothing of this hop or try, but one before it may have left
    WRITING = auto()
    AWAITING = auto()
    ANSWERED = auto()
    ANSWERED_UNREADABLY = auto()
    PERHAPS = auto()


# Which name wins is a matter of order: subclasses come before their bases.
_HTTPX = {
    "ConnectError": Sent.NOTHING,
    "ConnectTimeout": Sent.NOTHING,
    "PoolTimeout": Sent.NOTHING,
    "ProxyError": Sent.NOTHING,
    "UnsupportedProtocol": Sent.NOTHING,
    "HTTPStatusError": Sent.ANSWERED,
    "DecodingError": Sent.ANSWERED_UNREADABLY,
    "WriteError": Sent.WRITING,
    "WriteTimeout": Sent.WRITING,
    "LocalProtocolError": Sent.WRITING,
    "ReadError": Sent.AWAITING,
    "ReadTimeout": Sent.AWAITING,
    "RemoteProtocolError": Sent.AWAITING,
    "TooManyRedirects": Sent.ANSWERED,
    "HTTPError": Sent.PERHAPS,
}
_KNOWN = {
    **{
        f"{library}.{name}": sent
        for library in ("httpx2", "httpx")
        for name, sent in _HTTPX.items()
    },
    "requests.MissingSchema": Sent.NOTHING,
    "requests.InvalidSchema": Sent.NOTHING,
    "requests.HTTPError": Sent.ANSWERED,
    "requests.RetryError": Sent.ANSWERED,
    "requests.TooManyRedirects": Sent.ANSWERED,
    "requests.JSONDecodeError": Sent.ANSWERED_UNREADABLY,
    "requests.ChunkedEncodingError": Sent.ANSWERED_UNREADABLY,
    "requests.ContentDecodingError": Sent.ANSWERED_UNREADABLY,
    "requests.ConnectTimeout": Sent.NOTHING,
    "requests.ReadTimeout": Sent.AWAITING,
    "requests.RequestException": Sent.PERHAPS,
    "urllib3.NewConnectionError": Sent.NOTHING,
    "urllib3.ConnectTimeoutError": Sent.NOTHING,
    "urllib3.EmptyPoolError": Sent.NOTHING,
    "urllib3.ProxyError": Sent.NOTHING,
    "urllib3.ResponseError": Sent.ANSWERED,
    "urllib3.IncompleteRead": Sent.ANSWERED_UNREADABLY,
    "urllib3.InvalidChunkLength": Sent.ANSWERED_UNREADABLY,
    "urllib3.DecodeError": Sent.ANSWERED_UNREADABLY,
    "urllib3.ReadTimeoutError": Sent.AWAITING,
    "urllib3.ProtocolError": Sent.AWAITING,
    "urllib3.HTTPError": Sent.PERHAPS,
    "json.JSONDecodeError": Sent.ANSWERED_UNREADABLY,
    "pydantic_core.ValidationError": Sent.ANSWERED_UNREADABLY,
    "builtins.UnicodeDecodeError": Sent.ANSWERED_UNREADABLY,
}
# These say nothing themselves; the error they carry does.
_WRAPPERS = {"requests.ConnectionError", "requests.SSLError", "urllib3.MaxRetryError"}
# Raised while connecting and while reading alike; the traceback tells which.
_PERHAPS_HANDSHAKE = {
    "requests.ReadTimeout",
    "urllib3.ProtocolError",
    "urllib3.ReadTimeoutError",
    "urllib3.SSLError",
}
DEEPEST_CAUSE = 8


def read_error(error: BaseException) -> Sent | None:
    """What had left when `error` was raised, or None for an error of no known library."""
    sent = _read_alone(error)
    if sent is Sent.NOTHING and any(_earlier_request(layer) for layer in _layers(error)):
        return Sent.EARLIER
    return sent


def _read_alone(error: BaseException) -> Sent | None:
    """The same, of this hop and try alone."""
    names = _class_names(error)
    inner = _inner(error, names)
    if inner is not None:
        return _read_alone(inner) or Sent.PERHAPS
    if _PERHAPS_HANDSHAKE.intersection(names) and _in_handshake(error):
        return Sent.NOTHING
    return next((_KNOWN[name] for name in names if name in _KNOWN), None)


def _class_names(error: BaseException) -> list[str]:
    """`library.Class` of the error and its bases, most specific first."""
    return [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__]


def _inner(error: BaseException, names: list[str]) -> BaseException | None:
    """The error that a wrapper carries."""
    if not _WRAPPERS.intersection(names):
        return None
    carried = [getattr(error, "reason", None), *error.args, error.__cause__, error.__context__]
    return next((one for one in carried if isinstance(one, BaseException)), None)


def _layers(error: BaseException) -> Iterator[BaseException]:
    layer: BaseException | None = error
    while layer is not None:
        yield layer
        layer = _inner(layer, _class_names(layer))


def _in_handshake(error: BaseException) -> bool:
    """Whether TLS was still being set up, so that no request can have left."""
    link: BaseException | None = error
    for _ in range(DEEPEST_CAUSE):
        if link is None:
            return False
        if isinstance(link, ssl.SSLCertVerificationError):
            return True
        for frame in _frames(link):
            if frame.f_code.co_name == "do_handshake" and frame.f_globals.get("__name__") == "ssl":
                return True
        link = link.__cause__ or link.__context__
    return False


def _earlier_request(error: BaseException) -> bool:
    """Whether the library had already got an answer, or tried, before this hop failed.

    The errors themselves do not say so; the frames that raised them do.
    """
    for frame in _frames(error):
        library = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        match library, frame.f_code.co_name:
            case (("httpx" | "httpx2"), "_send_handling_redirects"):
                if frame.f_locals.get("history") or "response" in frame.f_locals:
                    return True
            case "requests", ("resolve_redirects" | "dispatch_hook"):
                return True
            case "urllib3", "urlopen":
                if _earlier_try(frame.f_locals.get("retries")):
                    return True
    return False


def _earlier_try(retries: Any) -> bool:
    for entry in getattr(retries, "history", ()):
        if entry.error is None or _read_alone(entry.error) is not Sent.NOTHING:
            return True
    return False


def _frames(error: BaseException) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next
