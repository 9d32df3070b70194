"""Every page of the admin in a browser: its policy, its requests, its keyboard, its looks."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.looking import look
from tests.database.admin_pages import Start, person
from tests.database.every_page import every_page
from tests.database.every_row import fill

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_spike(start: Start, sign_in: SignIn, server: str) -> None:
    fill(start, 2)
    page = sign_in(person(superuser=True))
    import time
    said = []
    away = []
    page.on("console", lambda message: said.append((page.url, message.type, message.text[:300])))
    page.on("request", lambda request: away.append(request.url) if not request.url.startswith((server, "data:")) else None)
    page.on("response", lambda r: said.append((r.url, r.status)) if r.status >= 400 else None)
    n = 0
    for name, address in list(every_page().items())[:3]:
        t = time.monotonic()
        page.goto(address)
        n += 1
        print(name, page.url, round(time.monotonic() - t, 2))
    page.goto("/api/v1/docs/")
    page.wait_for_timeout(1500)
    page.screenshot(path="/tmp/shots/docs.png")
    for one in said: print(one)
    print(away, n)
    assert 0
