"""What the tests of the timeline's page share: its address, and what stands where on it."""

import html
import json
import re
from typing import Any

from django.test import Client
from django.urls import reverse

from runs.models import AgentRun, ToolOperation


def address_of(row: AgentRun | ToolOperation, **asked: str) -> str:
    name = f"admin:runs_{row._meta.model_name}_timeline"
    return reverse(name, args=[row.pk], query=asked)


# The rights that everybody needs who sees a timeline.
READS = (
    *("view_agentrun", "view_transition", "view_tooloperation", "view_toolobservation"),
    *("view_modeldecision", "view_llmrequest", "view_handoff", "view_incident"),
)


def exported(client: Client, row: AgentRun | ToolOperation) -> dict[str, Any]:
    """The timeline as a file."""
    answer = client.get(f"{address_of(row)}export/")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert f'filename="timeline-{row.pk}.json"' in answer.headers["Content-Disposition"]
    found: dict[str, Any] = json.loads(b"".join(answer.streaming_content))  # type: ignore[arg-type]
    return found


def opened(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


def verdict_in(page: str) -> str:
    """What the first box says."""
    return part(page, "verdict")


def story_in(page: str) -> str:
    """What the story says, opened or not."""
    return part(page, "story")


def part(page: str, name: str) -> str:
    """The words of one part of the page, without its tags."""
    start = page.index(f'id="{name}"')
    ends = [page.find(f'id="{other}"', start + 1) for other in _PARTS]
    end = min([end for end in ends if end > start] or [len(page)])
    return " ".join(html.unescape(re.sub(r"<[^>]*>?", " ", page[start:end])).split())


def link_in(page: str, name: str) -> str:
    """The address behind the link with this id."""
    found = re.search(rf'<a[^>]*id="{name}"[^>]*href="([^"]+)"', page)
    assert found is not None, name
    return html.unescape(found[1])


_PARTS = ("verdict", "lanes", "story", "family")
