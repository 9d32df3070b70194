"""What the tests of the questions' pages share: their addresses, and what a browser would post."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runs.models import Question
from tests.database.admin_pages import browser_of
from tests.database.asking import answerer


def page_of(question: Question) -> str:
    return reverse("admin:runs_question_change", args=[question.pk])


def clerk(name: str | None = None, *groups: str, **columns: Any) -> tuple[User, Client]:
    """Somebody who may answer in the admin, and their browser."""
    user = answerer(name, *groups, is_staff=True, **columns)
    return user, browser_of(user)


def typed(value: Any) -> dict[str, Any]:
    """What is posted of a form with one field."""
    return {"field-0": value}


def answer_page(client: Client, question: Question, given: Mapping[str, Any]) -> Any:
    """Post the form of the question with what was typed."""
    address = reverse("admin:runs_question_answer", args=[question.pk])
    return client.post(address, {"event_id": uuid4().hex, **given})
