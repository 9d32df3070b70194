"""What people see of audits at providers."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs.models import EffectAudit
from tests.database.admin_pages import HOSTILE, browser_of, person

pytestmark = pytest.mark.django_db
LIST = reverse("admin:runs_effectaudit_changelist")


@pytest.fixture
def reader() -> Client:
    return browser_of(person("view_effectaudit"))


def audited(**found: Any) -> EffectAudit:
    now = timezone.now()
    since = now - timedelta(hours=1)
    return EffectAudit.objects.create(tool="refund", since=since, until=now, **found)


def pages(reader: Client, audit: EffectAudit) -> list[str]:
    record = reverse("admin:runs_effectaudit_change", args=[audit.pk])
    return [reader.get(address).content.decode() for address in (LIST, record)]


def test_an_audit_that_found_everything_says_so_and_nothing_to_do(reader: Client) -> None:
    for page in pages(reader, audited(effects=3, matched=3)):
        assert "All accounted for" in page
        assert "Not everything" not in page


def test_what_is_not_accounted_for_is_counted_and_quoted_as_it_came(reader: Client) -> None:
    audit = audited(effects=4, matched=1, duplicates=1, late=1, unaccounted=1, missing=2)
    listed, record = pages(reader, audit)
    assert "5 not accounted for" in listed
    assert "Not everything is accounted for" in record
    hostile = audited(effects=1, unaccounted=1, findings=[{"reference": HOSTILE}])
    _, record = pages(reader, hostile)
    assert "&lt;script&gt;alert(1)" in record
    assert "\u202e" not in record


def test_a_provider_that_could_not_be_asked_is_no_clean_audit(reader: Client) -> None:
    listed, record = pages(reader, audited(error=f"503 {HOSTILE}"))
    assert "Could not be asked" in listed
    assert "All accounted for" not in listed + record
    assert "<script>alert" not in listed + record


def test_only_those_who_may_see_audits_do() -> None:
    stranger = browser_of(person("view_incident"))
    assert stranger.get(LIST).status_code == 403
