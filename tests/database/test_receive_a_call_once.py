"""What the page on receiving a call once shows works as it stands there."""

import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.test import RequestFactory
from mcp import Client
from rest_framework.test import APIRequestFactory

from tests.database.kit import another_connection, change
from tests.database.receiving import ON_TOOLS
from tests.database.test_fencing import a_call
from tools import registry
from tools.checks import check_tools
from tools.errors import KeyMismatch, StaleToken

pytestmark = ON_TOOLS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "receive-a-call-once.md"
MODELS = """
from django.db import models


class Refund(models.Model):
    order_id = models.CharField(max_length=50)
    amount = models.DecimalField(max_digits=9, decimal_places=2)

    class Meta:
        app_label = "shop"


class Price(models.Model):
    sku = models.CharField(max_length=50, unique=True)
    price = models.DecimalField(max_digits=9, decimal_places=2)

    class Meta:
        app_label = "shop"
"""


class Carrier(BaseHTTPRequestHandler):
    """A carrier that makes a second label if it is asked twice, and may lose its answer."""

    labels: ClassVar[list[dict[str, str]]] = []
    loses_answers: ClassVar[bool] = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.labels.append({"label": f"L-{len(self.labels) + 1}", "parcel": body["parcel"]})
        if self.loses_answers:
            self.close_connection = True
            return
        self._answer(self.labels[-1])

    def do_GET(self) -> None:
        parcel = self.path.rpartition("=")[2]
        self._answer([label for label in self.labels if label["parcel"] == parcel])

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def carrier() -> Iterator[str]:
    """The address of a carrier without labels."""
    Carrier.labels, Carrier.loses_answers = [], False
    with ThreadingHTTPServer(("127.0.0.1", 0), Carrier) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture
def page(
    transactional_db: None, carrier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """All of the page's code as one module, with the two models that it speaks of."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "models.py").write_text(MODELS)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    (tmp_path / "shop" / "page.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CARRIER_URL", carrier)
    from shop import page  # type: ignore[import-not-found]

    models = list(apps.all_models["shop"].values())
    with connection.schema_editor() as editor:
        for model in models:
            editor.create_model(model)
    yield page
    page.carrier.close()
    with connection.schema_editor() as editor:
        for model in models:
            editor.delete_model(model)
    del apps.all_models["shop"]
    apps.clear_cache()
    for name in ("shop", "shop.models", "shop.page"):
        del sys.modules[name]


BODY = {"order_id": "17", "amount": "40.00"}


def test_everything_on_the_page(page: ModuleType) -> None:
    _the_rest_view(page)
    _the_plain_view(page)
    _the_mcp_tool(page)
    _the_label(page)
    _the_price(page)


def _the_rest_view(page: ModuleType) -> None:
    view = page.RefundsView.as_view(authentication_classes=[], permission_classes=[])
    answers = [
        view(APIRequestFactory().post("/", BODY, format="json", headers={"Idempotency-Key": "k"}))
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].data == answers[1].data
    assert [answer.headers.get("Idempotent-Replayed") for answer in answers] == [None, "true"]
    assert page.Refund.objects.count() == 1


def _the_plain_view(page: ModuleType) -> None:
    def post(key: str | None, **changed: str) -> tuple[int, Any, str | None]:
        headers = {} if key is None else {"Idempotency-Key": key}
        request = RequestFactory().post(
            "/", BODY | changed, content_type="application/json", headers=headers
        )
        answer = page.refunds(request)
        body = json.loads(answer.content)
        return answer.status_code, body, answer.headers.get("Idempotent-Replayed")

    before = page.Refund.objects.count()
    status, body, replayed = post("k")
    assert (status, body["amount"], replayed) == (201, "40.00", None)
    assert post("k") == (201, body, "true")
    assert page.Refund.objects.count() == before + 1
    assert post("k", amount="41.00")[0] == 422
    assert post(None)[0] == 400
    assert post("k2", amount="400.00") == (422, {"detail": "more than was paid"}, None)
    assert post("k2", amount="400.00") == (422, {"detail": "more than was paid"}, None)
    change("UPDATE tools_idempotencykey SET keep_until = now()")
    assert post("k")[0] == 410
    assert page.Refund.objects.count() == before + 1


def _the_mcp_tool(page: ModuleType) -> None:
    async def call_twice() -> list[Any]:
        async with Client(page.server) as client:
            arguments = BODY | {"idempotency_key": "k"}
            answers = [await client.call_tool("refund", arguments) for _ in range(2)]
            other = await client.call_tool("refund", arguments | {"amount": "41.00"})
        return [*answers, other]

    before = page.Refund.objects.count()
    first, again, other = asyncio.run(call_twice())
    assert not first.is_error
    assert first.structured_content == again.structured_content
    assert other.is_error
    assert str(KeyMismatch(scope="")) in other.content[0].text
    assert page.Refund.objects.count() == before + 1


def _the_label(page: ModuleType) -> None:
    label = page.print_label("p1", "k1")
    assert label.result == {"label": "L-1", "parcel": "p1"}
    assert page.print_label("p1", "k1").result == label.result
    Carrier.loses_answers = True
    with pytest.raises(page.httpx2.TransportError):
        page.print_label("p2", "k2")
    assert page.print_label("p2", "k2").result == {"label": "L-2", "parcel": "p2"}
    assert len(Carrier.labels) == 2


def _the_price(page: ModuleType) -> None:
    assert [m for m in check_tools() if m.is_serious()] == []
    set_price = registry.get_tool("set_price").function
    set_price(a_call(run_id="run-1", fence_token=2), "sku-1", Decimal("9.50"))
    with pytest.raises(StaleToken):
        set_price(a_call(run_id="run-1", fence_token=1), "sku-1", Decimal("8.50"))
    with another_connection() as other:
        seen = other.execute("SELECT price FROM shop_price").fetchone()
    assert seen == (Decimal("9.50"),)
    assert not transaction.get_connection().in_atomic_block
