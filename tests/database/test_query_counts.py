"""No page of the admin costs more than a few queries, and none costs more for more rows."""

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.database.admin_pages import Start, browser_of, person
from tests.database.every_page import every_page
from tests.database.every_row import fill

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

MOST = 20
FEW, MANY = 3, 10


def test_no_page_costs_more_for_ten_rows_than_for_three(start: Start) -> None:
    client = browser_of(person(superuser=True))
    fill(start, FEW)
    few = {name: _queries(client, address) for name, address in every_page().items()}
    fill(start, MANY - FEW)
    faults = []
    for model in admin.site._registry:
        assert model._default_manager.count() >= MANY, f"{model.__name__}: fill() makes too few"
    for name, address in every_page().items():
        many = _queries(client, address)
        if len(many) > MOST or len(many) > len(few[name]):
            faults.append(f"{name}: {len(few[name])} queries, then {len(many)}")
    assert faults == []


def _queries(client: Client, address: str) -> list[str]:
    with CaptureQueriesContext(connection) as sent:
        assert client.get(address).status_code == 200, address
    return [str(query["sql"])[:200] for query in sent]
