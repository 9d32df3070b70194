"""What the admin's tests share: runs worth looking at, people, and a way to walk the pages."""

import html
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import count
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.engine import advance
from runs.models import AgentRun, Handoff, Incident, LlmRequest
from tools import Call, EffectType, Provider, Retry, external_ref, tool

CARD = "4111-1111-1111-1111"
# A tag, a right-to-left override with its end, and a bell.
HOSTILE = "<script>alert(1)</script> \u202egnp.exe\u202c \u0007"
KINDS = (
    "agentrun",
    "step",
    "stepattempt",
    "modeldecision",
    "tooloperation",
    "toolobservation",
    "checkpoint",
    "transition",
    "incident",
    "llmrequest",
    "handoff",
)
_PROVIDER = Provider(
    name="payments", idempotency_support="key", idempotency_retention=timedelta(hours=24)
)
_numbers = count(1)

Start = Callable[..., AgentRun]


def define_tools() -> None:
    """`look` answers; `pay` pays, or loses its answer; everything they say is hostile."""

    @tool(effect_type=EffectType.READ, name="look")
    def look(call: Call, order: str) -> dict[str, Any]:
        """Look."""
        return {"order": order, "note": HOSTILE}

    @tool(
        effect_type=EffectType.IDEMPOTENT_WRITE,
        provider=_PROVIDER,
        name="pay",
        sensitive=("card_number",),
        retry_policy=Retry(first_delay=200.0),
    )
    def pay(call: Call, card_number: str, lost: bool = False) -> dict[str, Any]:
        """Pay."""
        if lost:
            raise TimeoutError(f"no answer for {card_number}: {HOSTILE}")
        external_ref("re_1")
        return {"paid": True, "card_number": card_number}


def finished_run(start: Start, *, steps: int = 1, key: str | None = None) -> AgentRun:
    """A run that looked `steps` times, paid, and completed; later a second payment was found."""
    run = _driven(start, key=key, calls=[*_looks(steps), _pay(lost=False)])
    Incident.objects.create(
        run=run,
        operation=run.operations.get(tool="pay"),
        kind=Incident.Kind.DUPLICATE,
        external_ref="re_2",
        detail=f"a second effect for {CARD}: {HOSTILE}",
    )
    return run


def uncertain_run(start: Start) -> AgentRun:
    """A run whose payment may or may not have happened."""
    run = _driven(start, calls=[*_looks(1), _pay(lost=True)])
    assert run.uncertain
    return run


def fresh_run(start: Start, **options: Any) -> AgentRun:
    """A run that no worker has taken."""
    return start(decider=lambda context: Finish(None), **options)


def person(*permissions: str, superuser: bool = False) -> User:
    """Somebody who may enter the admin, with these permissions (`view_agentrun`)."""
    user = User.objects.create_user(f"person{next(_numbers)}", is_staff=True)
    user.is_superuser = superuser
    user.save()
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def browser_of(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


def list_of(kind: str) -> str:
    return reverse(f"admin:runs_{kind}_changelist")


def page_of(run: AgentRun) -> str:
    return reverse("admin:runs_agentrun_change", args=[run.pk])


def links_in(page: str) -> set[str]:
    """The pages of runs that a page leads to; a file is none."""
    found = {html.unescape(link) for link in re.findall(r'href="(/admin/runs/[^"]+)"', page)}
    return {link for link in found if not link.endswith("/export/")}


def walk(client: Client, start: str, *, most: int = 150) -> dict[str, str]:
    """Every page reachable from `start`, by address; all of them must open."""
    pages: dict[str, str] = {}
    ahead = [start]
    while ahead and len(pages) < most:
        address = ahead.pop(0)
        answer = client.get(address)
        assert answer.status_code == 200, address
        pages[address] = answer.content.decode()
        seen = pages.keys() | set(ahead)
        ahead.extend(sorted(link for link in links_in(pages[address]) if link not in seen))
    return pages


def counting(statements: Iterable[str]) -> list[str]:
    """Those that count rows without a bound on how many they look at."""
    said = (sql.upper() for sql in statements)
    return [sql for sql in said if "COUNT(" in sql and "LIMIT" not in sql]


def _driven(start: Start, *, calls: list[ToolCall], key: str | None = None) -> AgentRun:
    def decide(context: Context) -> Decision:
        context.requests.append(_asked())
        done = context.step_number - 1
        return CallTools(calls[done]) if done < len(calls) else Finish({"note": HOSTILE})

    run = start(
        decider=decide,
        tools=("look", "pay"),
        objective=f"Refund the order {HOSTILE}",
        input={"card_number": CARD, "note": HOSTILE},
        idempotency_key=key,
    )
    advance(run_id=run.id, owner="worker <b>")
    run.refresh_from_db()
    Handoff.objects.create(
        run=run,
        number=1,
        through_step=1,
        reason=Handoff.Reason.WINDOW,
        schema_version=1,
        body={"objective": f"Refund {CARD}", "notes": [{"card_number": CARD, "text": HOSTILE}]},
        written_by=f"llm {HOSTILE}",
        repairs=0,
        fence_token=1,
    )
    return run


def _asked() -> LlmRequest:
    """What somebody's llm said: hostile text, a secret, and no price."""
    return LlmRequest(
        purpose=LlmRequest.Purpose.DECIDE,
        llm="openai:gpt-5-mini",
        llm_version=HOSTILE,
        prompt_version="p1",
        outcome=LlmRequest.Outcome.UNUSABLE,
        problem=LlmRequest.Problem.MALFORMED,
        detail=f"no JSON: {CARD} {HOSTILE}",
        said=f"I pay with {CARD}. {HOSTILE} " * 9,
        finish_reason=HOSTILE[:32],
        response_id=HOSTILE,
        latency_ms=830,
    )


def _looks(number: int) -> list[ToolCall]:
    return [ToolCall("look", order=str(n)) for n in range(number)]


def _pay(*, lost: bool) -> ToolCall:
    return ToolCall("pay", card_number=CARD, lost=lost)
