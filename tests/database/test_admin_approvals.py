"""From a run or an operation it is one click to the request that it waits for."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runs.models import AgentRun
from tests.database.gating import Start, held, operations_of, request_of, sign
from tests.database.kit import drive

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def waiting(start: Start) -> AgentRun:
    return held(start)[0]


def page_of(name: str, pk: object) -> str:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client.get(reverse(f"admin:runs_{name}_change", args=[pk])).content.decode()


def test_a_run_that_waits_links_to_its_request(waiting: AgentRun) -> None:
    page = page_of("agentrun", waiting.id)
    assert reverse("admin:runs_approval_change", args=[request_of(waiting).id]) in page
    assert "Waits for a signature" in page


def test_an_operation_links_to_its_request_also_once_it_is_signed(waiting: AgentRun) -> None:
    sign(waiting)
    drive(waiting)
    page = page_of("tooloperation", operations_of(waiting)[0].id)
    assert reverse("admin:runs_approval_change", args=[request_of(waiting).id]) in page
