"""One request to AWS, and what an error of boto3 proves about it.

Guarantees: `send_once` lets a write leave at most once (no retry, no repeat in the bucket's
own region); it raises NotSent only where no connection was made or AWS documents that it
did not execute, and Rejected only for a refusal that carries AWS's own request id; every
other error is raised as it came and means "unknown".
Does not bound the whole answer's time: botocore's time-outs are per read. Does not know
what a service's conflict means: the adapters do.

Region, endpoint and credentials come from the environment and AWS's own files, at each call
(`AWS_REGION`, `AWS_ENDPOINT_URL_S3`, `AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, …).
"""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final, NoReturn

from tools.call import Call
from tools.catalog.extras import need
from tools.errors import NotSent, Rejected, ToolError
from tools.http_errors import Sent, read_error
from tools.outcome import describe

# The request's signature or credentials did not hold, so it was not executed; that can be mended.
NOT_AUTHENTICATED: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "MissingAuthenticationToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
# Refusals of the moment under a 4xx status: nobody promises that nothing was done.
OF_THE_MOMENT: Final = frozenset(
    {
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
STATUSES_OF_THE_MOMENT: Final = frozenset({408, 409, 425, 429})


class AlreadyThere(ToolError):
    """AWS answered that what the write would create exists."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"AWS answered {code}")


def send_once(
    *,
    call: Call,
    service: str,
    operation: str,
    parameters: Mapping[str, Any],
    already_there: Collection[str],
) -> dict[str, Any]:
    """The parsed answer of one write; `operation` is boto3's method name ("put_object").

    Raises AlreadyThere for an error code in `already_there`, NotSent, Rejected, and else what
    botocore raised.
    """
    errors = need("botocore.exceptions", extra="aws")
    gate = _Gate(call)
    try:
        client = _client(service, seconds=call.remaining)
        gate.watch(client, operation)
        answer: dict[str, Any] = getattr(client, operation)(**parameters)
    except errors.ClientError as error:
        if (code := error_code(error)) in already_there:
            raise AlreadyThere(code) from error
        _raise_refusal(error)
    except errors.ParamValidationError as error:
        # boto3 checked the values itself and will never send them.
        raise Rejected(str(error)) from error
    except Exception as error:
        if not gate.opened or _no_connection(error, errors):
            raise NotSent(describe(error)) from error
        raise
    finally:
        gate.close()
    return answer


def ask(*, call: Call, service: str, operation: str, parameters: Mapping[str, Any]) -> Any:
    """The parsed answer of one read. Raises what botocore raises."""
    return getattr(_client(service, seconds=call.remaining), operation)(**parameters)


def client_error() -> type[Exception]:
    """botocore's class for an error that AWS answered."""
    found: type[Exception] = need("botocore.exceptions", extra="aws").ClientError
    return found


def error_code(error: Any) -> str:
    """AWS's name for an error that it answered, "" without one."""
    return str(error.response.get("Error", {}).get("Code", ""))


def error_status(error: Any) -> int:
    """The HTTP status of an error that AWS answered, 0 if it is not known."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


class _Gate:
    """The last point before a request leaves: opens once, before the deadline, and tells so."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.opened = False

    def watch(self, client: Any, operation: str) -> None:
        name = (
            f"{client.meta.service_model.service_id.hyphenize()}"
            f".{client.meta.method_to_api_mapping[operation]}"
        )
        client.meta.events.register_first(f"before-send.{name}", self._open)
        # The first answer counts. S3's redirector asks for a repeat whatever the retry mode is.
        client.meta.events.register_first(f"needs-retry.{name}", _never)

    def _open(self, **_: Any) -> None:
        if self._call.seconds_left() <= 0:
            raise NotSent("the deadline passed while the request was prepared")
        self.opened = True
        self._call.window.mark("first_byte")

    def close(self) -> None:
        if self.opened:
            self._call.window.mark("closed")


def _never(**_: Any) -> bool:
    return False


def _client(service: str, *, seconds: float) -> Any:
    boto3 = need("boto3", extra="aws")
    config = need("botocore.config", extra="aws").Config(
        connect_timeout=seconds,
        read_timeout=seconds,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    session = need("botocore.session", extra="aws").Session()
    session.register_component("data_loader", _loader())
    return boto3.session.Session(botocore_session=session).client(service, config=config)


@cache
def _loader() -> Any:
    """AWS's service descriptions, read once per process: megabytes of JSON."""
    return need("botocore.session", extra="aws").Session().get_component("data_loader")


def _no_connection(error: Exception, errors: Any) -> bool:
    """Whether a request failed before there was a connection to write it to."""
    if isinstance(
        error,
        errors.EndpointConnectionError | errors.ConnectTimeoutError | errors.ProxyConnectionError,
    ):
        return True
    # A TLS error may come from the handshake or from a later read; urllib3's own says which.
    inner = getattr(error, "kwargs", {}).get("error")
    return isinstance(inner, Exception) and read_error(inner) is Sent.NOTHING


def _raise_refusal(error: Any) -> NoReturn:
    code, status = error_code(error), error_status(error)
    answered_by_aws = bool(error.response.get("ResponseMetadata", {}).get("RequestId"))
    if not answered_by_aws or code in OF_THE_MOMENT or status in STATUSES_OF_THE_MOMENT:
        raise error
    if code in NOT_AUTHENTICATED or 300 <= status < 400:
        raise NotSent(f"AWS did not execute it: {describe(error)}") from error
    if 400 <= status < 500:
        raise Rejected(describe(error)) from error
    raise error
