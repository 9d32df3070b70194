"""Signed webhooks, in the format of Standard Webhooks.

Guarantees: the bytes that are signed are the bytes that leave; the id in the signature is the
event's, the time is the try's. Only 2xx is success; a redirect is not followed, as it may lead
anywhere. One call ends within `CALL_SECONDS`, whatever its receiver does, and reads no more
than `MOST_BYTES` of the answer, of which nothing but the status is kept.

Does not keep a receiver from being sent the same event twice: its `webhook-id` tells.
"""

import asyncio
from datetime import UTC, datetime
from functools import cache
from ssl import SSLContext
from types import TracebackType
from typing import Final, Self

import httpx2
from standardwebhooks import Webhook

from agentops.notifications.errors import NotDelivered
from agentops.notifications.receivers import secret_of
from agentops.notifications.wording import Told, payload, webhook_id

CALL_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
MOST_BYTES: Final = 64 * 1024
USER_AGENT: Final = "agentops-webhooks/1"
GONE: Final = 410
# These speak of the receiver and not of the one event: others would fare no better now.
_BUSY: Final = frozenset({408, 429})


class WebhookChannel:
    """One receiver; connections are kept for the time of the block."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._signer = Webhook(secret_of(url))

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._client = httpx2.AsyncClient(
            verify=_certificates(),
            follow_redirects=False,
            timeout=httpx2.Timeout(CALL_SECONDS, connect=CONNECT_SECONDS),
            # Plain HTTP is for loopback alone, where no proxy of the environment belongs.
            mounts={"http://": httpx2.AsyncHTTPTransport()},
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._runner.run(self._client.aclose())
        finally:
            self._runner.close()

    def send(self, told: Told, address: str) -> None:
        """Return once it was taken. Raises NotDelivered."""
        now, body, event = datetime.now(UTC), payload(told), webhook_id(told)
        headers = {
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            "webhook-id": event,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._signer.sign(event, now, body.decode()),
        }
        try:
            status = self._runner.run(self._post(body, headers))
        except TimeoutError as error:
            raise NotDelivered(f"no answer within {CALL_SECONDS:g} s", lane_is_down=True) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            # Its own words may hold the address, which may hold a secret.
            raise NotDelivered(f"no answer ({type(error).__name__})", lane_is_down=True) from error
        if not 200 <= status < 300:
            raise NotDelivered(
                f"answered {status}",
                for_good=status == GONE,
                lane_is_down=status >= 500 or status in _BUSY,
            )

    async def _post(self, body: bytes, headers: dict[str, str]) -> int:
        async with (
            # The client's own limits are per read: a receiver that drips would have for ever.
            asyncio.timeout(CALL_SECONDS),
            self._client.stream("POST", self._url, content=body, headers=headers) as answer,
        ):
            read = 0
            async for chunk in answer.aiter_raw():
                read += len(chunk)
                if read > MOST_BYTES:
                    break
            return answer.status_code


@cache
def _certificates() -> SSLContext:
    """Loaded once: it takes longer than most calls."""
    return httpx2.create_ssl_context()
