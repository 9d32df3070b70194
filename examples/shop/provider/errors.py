"""What is wrong with a request, as an answer the caller can act on.

    RequestError
    ├── InvalidField        400  one named value, and what it should be
    ├── UnreadableBody      400  not a JSON object
    ├── UnknownPath         404
    ├── UnknownOrder        404
    ├── MethodNotAllowed    405
    ├── NothingHappened     408  waited in vain
    ├── LengthRequired      411
    └── BodyTooLarge        413

A request that raises one of these had no effect. A refund that was understood but is refused
by the rules of the business is no error: `refunds` answers it with 422 and a reason.
"""

from typing import ClassVar


class RequestError(Exception):
    """The request is answered with `status` and `{"error": code, "message": sentence}`."""

    status: ClassVar[int]
    code: ClassVar[str]
    # The body was not read to its end, so the next request cannot be found in the stream.
    ends_connection: ClassVar[bool] = False


class InvalidField(RequestError):
    status = 400
    code = "invalid_request"

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        super().__init__(f"{field} is {ascii(value)[:80]}: {fix}")


class UnreadableBody(RequestError):
    status = 400
    code = "unreadable_body"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the body is not a JSON object: {why}")


class UnknownPath(RequestError):
    status = 404
    code = "unknown_path"

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"there is nothing at {ascii(path)[:80]}")


class UnknownOrder(RequestError):
    status = 404
    code = "unknown_order"

    def __init__(self, order_id: str) -> None:
        self.order_id = order_id
        super().__init__(f"there is no order {ascii(order_id)[:80]}")


class MethodNotAllowed(RequestError):
    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed
        super().__init__(f"{path} answers {', '.join(allowed)}, not {method}")


class NothingHappened(RequestError):
    status = 408
    code = "nothing_happened"

    def __init__(self, awaited: str, seconds: float) -> None:
        self.awaited = awaited
        super().__init__(f"{awaited} did not happen within {seconds:g} seconds")


class LengthRequired(RequestError):
    status = 411
    code = "length_required"
    ends_connection = True

    def __init__(self) -> None:
        super().__init__("send the body with a Content-Length; chunked bodies are not read")


class BodyTooLarge(RequestError):
    status = 413
    code = "body_too_large"
    ends_connection = True

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"the body is larger than {limit} bytes")
