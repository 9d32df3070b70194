"""Stripe as two others play it, each in a process of its own.

`StatefulStripe` (npm stripe-stateful-mock) honours idempotency keys: it replays the first answer,
refusals included, and answers 400 to a known key with other parameters. `Localstripe` (PyPI
localstripe) ignores them: each request is an effect, and no sum of refunds is too much for it.

Guarantees: effects are counted by asking the target past every proxy.
Does not stand for Stripe's own limits of rate, time or amount.
"""

import os
import re
from pathlib import Path
from typing import Any, Self

import httpx2

from tests.conformance.targets import npm
from tests.processes import Program, wait_until

HERE = Path(__file__).resolve().parent
API_KEY = "sk_test_conformance"
MODULE = "tests.conformance.targets.localstripe_process"
# Programs are started by this Python; this one becomes another program.
_BECOME = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


class Stripe:
    """Starts with a `with` block; from the main thread, like every program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._http = httpx2.Client(
            transport=httpx2.HTTPTransport(), auth=(API_KEY, ""), timeout=10.0
        )
        self.url = ""

    def __enter__(self) -> Self:
        wait_until(
            lambda: bool(self._address()) or not self._program.lives,
            what=f"{self._program.name} listens",
        )
        self.url = self._address()
        assert self.url, self._program.said
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._http.close()

    def charge(self, amount: int) -> str:
        """The id of a new captured charge, in cents."""
        raise NotImplementedError

    def refunds(self, charge: str) -> list[dict[str, Any]]:
        """The refunds of a charge, at most 1000, as the target's own list gives them."""
        query = {"charge": charge, "limit": "1000"}
        answer = self._http.get(f"{self.url}/v1/refunds", params=query)
        found: list[dict[str, Any]] = answer.raise_for_status().json()["data"]
        return found

    def refund(self, charge: str, amount: int, **more: str) -> str:
        """A refund by somebody else; returns its id."""
        return str(self._post("refunds", {"charge": charge, "amount": str(amount), **more})["id"])

    def _post(self, what: str, data: dict[str, str]) -> dict[str, Any]:
        answer = self._http.post(f"{self.url}/v1/{what}", data=data)
        made: dict[str, Any] = answer.raise_for_status().json()
        return made

    def _address(self) -> str:
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", self._program.said)
        return found.group(1) if found else ""


class StatefulStripe(Stripe):
    """Honours keys. Skips the calling test where npm is missing."""

    def __init__(self, *, log_dir: Path) -> None:
        folder = npm.install("stripe-stateful-mock", "0.0.16")
        script = str(HERE / "stripe_stateful.js")
        arguments = ("-c", _BECOME, npm.need_node(), script, str(folder))
        env = os.environ | {"LOG_LEVEL": "silent"}
        log = log_dir / "stripe.log"
        super().__init__(Program(*arguments, env=env, log=log, name="stripe-stateful-mock"))

    def charge(self, amount: int) -> str:
        data = {"amount": str(amount), "currency": "usd", "source": "tok_visa"}
        return str(self._post("charges", data)["id"])


class Localstripe(Stripe):
    """Ignores keys."""

    def __init__(self, *, log_dir: Path) -> None:
        log = log_dir / "localstripe.log"
        super().__init__(Program("-m", MODULE, env=os.environ, log=log, name="localstripe"))

    def charge(self, amount: int) -> str:
        data = {"amount": str(amount), "currency": "usd", "source": self._card()}
        return str(self._post("charges", data)["id"])

    def payment_intent(self, amount: int) -> tuple[str, str]:
        """The ids of a new payment intent that was paid, and of its charge."""
        data = {"amount": str(amount), "currency": "usd", "payment_method": self._card()}
        intent = str(self._post("payment_intents", data)["id"])
        paid = self._post(f"payment_intents/{intent}/confirm", {})
        return intent, str(paid["latest_charge"]["id"])

    def _card(self) -> str:
        card = {"number": "4242424242424242", "exp_month": "12", "exp_year": "2040", "cvc": "123"}
        fields = {f"card[{name}]": value for name, value in card.items()}
        return str(self._post("payment_methods", {"type": "card", **fields})["id"])
