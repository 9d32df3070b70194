"""The payment provider as a child process, for the demo and for tests.

Guarantees: on return from `start` the provider answers; it ends with its parent, however that
ends; after `kill` or `stop` it can be started again on the same ledger and port.
Does not survive being shared between processes: only the one that started it may stop it.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self

import httpx2

from examples.shop.provider.ledger import Booking, Effect, SeenRequest

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 15.0
STOP_SECONDS = 5.0

Kind = Literal[
    "lose_answer",
    "slow",
    "error_500",
    "late",
    "reset_before",
    "unreadable",
    "reject",
    "hang",
    "hold",
    "lag",
    "first_page",
]


class ProviderNotStarted(Exception):
    def __init__(self, ledger: Path, said: str) -> None:
        self.ledger = ledger
        super().__init__(f"the payment provider on {ledger} did not start: {said or 'no word'}")


class ProviderDidNotSee(Exception):
    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


@contextmanager
def provider_process(
    ledger: Path, *, ignore_keys: bool = False, port: int = 0
) -> Iterator["ProviderProcess"]:
    """A running provider with its books at `ledger`, stopped at the end of the block."""
    provider = ProviderProcess(ledger, ignore_keys=ignore_keys, port=port)
    try:
        yield provider.start()
    finally:
        provider.close()


class ProviderProcess:
    def __init__(self, ledger: Path, *, ignore_keys: bool = False, port: int = 0) -> None:
        self.ledger = ledger.resolve()
        self.port = port
        self._ignore_keys = ignore_keys
        self._process: subprocess.Popen[bytes] | None = None
        # A transport of its own: no proxy from the environment stands between.
        self._http = httpx2.Client(transport=httpx2.HTTPTransport(), timeout=10.0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> Self:
        """Starts it, on the earlier port if there was one. Raises `ProviderNotStarted`."""
        port_file, said = self.ledger.with_suffix(".port"), self.ledger.with_suffix(".log")
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "examples.shop.provider", "--end-with-stdin"]
        command += ["--port", str(self.port), "--port-file", str(port_file)]
        command += ["--ledger", str(self.ledger), *(["--ignore-keys"] * self._ignore_keys)]
        with said.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Ctrl-C in the terminal ends the parent first, and then this one in order.
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not port_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ProviderNotStarted(self.ledger, said.read_text(errors="replace")[-500:])
            time.sleep(0.01)
        self.port = int(port_file.read_text())
        self._get("/health")
        return self

    def stop(self) -> None:
        """Asks it to end, and insists after five seconds."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._http.close()

    def fault(
        self,
        kind: Kind,
        *,
        path: str = "/refunds",
        method: Literal["GET", "POST"] = "POST",
        times: int = 1,
        delay: float = 0.0,
        **options: float | str | bool,
    ) -> None:
        """Told before the request that shall meet it; see `provider.faults` for the options."""
        told = {"kind": kind, "path": path, "method": method, "times": times, "delay": delay}
        self._http.post(f"{self.url}/faults", json=told | options).raise_for_status()

    def clear_faults(self) -> None:
        self._http.delete(f"{self.url}/faults").raise_for_status()

    def release(self) -> int:
        """Lets held requests go on; returns how many there were."""
        answer = self._http.post(f"{self.url}/release").raise_for_status()
        return int(answer.json()["released"])

    def forget_keys(self) -> int:
        """What the end of their retention does to keys; returns how many there were."""
        answer = self._http.post(f"{self.url}/forget").raise_for_status()
        return int(answer.json()["forgotten"])

    def place_refund(
        self,
        operation_id: str,
        *,
        key: str | None = "",
        order: object = "18",
        amount: object = "12.50",
        account: str = "acct_main",
        fence_token: int | None = None,
        timeout: float = 10.0,
    ) -> httpx2.Response:
        """Asks for a refund as any caller could, outside of every run.

        The key is the operation id unless given; None sends none.
        """
        headers = {"Account": account}
        if key is not None:
            headers["Idempotency-Key"] = key or operation_id
        if fence_token is not None:
            headers["Fence-Token"] = str(fence_token)
        body = {"order": order, "amount": amount, "operation_id": operation_id}
        return self._http.post(f"{self.url}/refunds", json=body, headers=headers, timeout=timeout)

    def look_up(self, operation_id: str) -> list[dict[str, str]]:
        """The refunds that the provider finds for an operation, as it tells any caller."""
        answer = self._http.get(f"{self.url}/refunds", params={"operation_id": operation_id})
        found: list[dict[str, str]] = answer.raise_for_status().json()
        return found

    def effects(self, operation_id: str | None = None) -> list[Effect]:
        """The money that moved, oldest first."""
        effects = [Effect(**row) for row in self._get("/ledger")["effects"]]
        return [one for one in effects if operation_id in (None, one.operation_id)]

    def bookings(self, *, order_id: str, book: str | None = None) -> list[Booking]:
        """What was booked for an order, oldest first; what was taken back is negative."""
        booked = [Booking(**row) for row in self._get("/ledger")["bookings"]]
        return [one for one in booked if one.order_id == order_id and book in (None, one.book)]

    def requests(self, *, path: str | None = None, method: str | None = None) -> list[SeenRequest]:
        """What was asked about orders, refunds and bookings, in the order of arrival."""
        seen = [SeenRequest(**row) for row in self._get("/ledger")["requests"]]
        return [one for one in seen if path in (None, one.path) and method in (None, one.method)]

    def wait_for_requests(
        self, count: int, *, path: str = "/refunds", method: str = "POST", seconds: float = 10.0
    ) -> None:
        """Until `count` such requests have arrived. Raises `ProviderDidNotSee`."""
        self._wait({"count": count, "path": path, "method": method}, seconds=seconds)

    def wait_until_held(self, count: int = 1, *, seconds: float = 10.0) -> None:
        """Until `count` requests are held at once. Raises `ProviderDidNotSee`."""
        self._wait({"held": count}, seconds=seconds)

    def wait_until_landed(self, *, seconds: float = 10.0) -> None:
        """Until no late request is under way. Raises `ProviderDidNotSee`."""
        self._wait({"landed": 1}, seconds=seconds)

    def _wait(self, query: dict[str, str | int], *, seconds: float) -> None:
        answer = self._http.get(
            f"{self.url}/wait", params={**query, "timeout": seconds}, timeout=seconds + 5.0
        )
        if answer.status_code == httpx2.codes.REQUEST_TIMEOUT:
            raise ProviderDidNotSee(answer.json()["message"])
        answer.raise_for_status()

    def _get(self, path: str) -> Any:
        return self._http.get(f"{self.url}{path}").raise_for_status().json()
