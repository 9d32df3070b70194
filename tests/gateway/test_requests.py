"""What the web process makes of HTTP: each request whole, in one thread."""

import re
from concurrent.futures import ThreadPoolExecutor

import httpx2

from tests.gateway.conftest import Gateway


def test_pages_come_whole_with_their_cookies_and_files(gateway: Gateway) -> None:
    page = httpx2.get(f"{gateway.one}/admin/login/")
    assert page.status_code == 200
    assert page.cookies["csrftoken"]
    files = re.findall(r'(?:href|src)="(/static/[^"]+\.(?:css|js))"', page.text)
    assert files
    for name in files:
        found = httpx2.get(gateway.one + name)
        assert (found.status_code, len(found.content)) == (
            200,
            int(found.headers["content-length"]),
        )


def test_a_head_request_has_no_body(gateway: Gateway) -> None:
    answer = httpx2.head(f"{gateway.one}/healthz")
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_problem_outside_a_view_is_a_problem_document_too(gateway: Gateway) -> None:
    answer = httpx2.get(f"{gateway.one}/api/v1/nothing/")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_requests_at_once_do_not_see_each_other(gateway: Gateway) -> None:
    def ask(number: int) -> bool:
        answer = httpx2.get(f"{gateway.one}/api/v1/nothing-{number}/", timeout=60)
        return answer.json()["instance"] == f"/api/v1/nothing-{number}/"

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))
