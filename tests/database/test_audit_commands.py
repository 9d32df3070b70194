"""`audit_effects`: an operator's audit, and whether anything did not match, as its exit code."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from runs.models import EffectAudit, Sweep
from tests.database.auditing import Listing, Start, paying
from tests.database.kit import ON_DATABASE, call_once, drive, incidents, operation_of
from tools import Effect

pytestmark = ON_DATABASE


def told(*arguments: str) -> tuple[int, str]:
    """(exit code, what it printed)."""
    out = StringIO()
    try:
        call_command("audit_effects", *arguments, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.fixture
def listed(start: Start) -> tuple[Listing, Any]:
    """A payment that is recorded, at a provider that lists it."""
    listing = Listing()
    paying(listing)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    listing.effects = [Effect(operation_of(run).id, "re_1", at=datetime.now(UTC))]
    return listing, run


def test_what_matches_is_shown_and_ends_with_0(listed: tuple[Listing, Any]) -> None:
    code, text = told("pay")
    assert (code, EffectAudit.objects.count()) == (0, 1)
    assert all(word in text for word in ("pay", "matched", "unaccounted", "UTC"))
    # The sweep's watermark is the sweep's own.
    assert not Sweep.objects.exists()


def test_what_does_not_match_is_told_and_ends_with_1(listed: tuple[Listing, Any]) -> None:
    listing, run = listed
    named = operation_of(run).id
    now = datetime.now(UTC)
    listing.effects += [Effect(named, "re_2", at=now), Effect("\x1b[31mred", "re_3", at=now)]
    code, text = told()
    assert code == 1
    assert all(word in text for word in ("duplicate", "re_2", named, "unaccounted", "re_3"))
    assert "\x1b" not in text
    assert incidents(run) == [("DUPLICATE", "re_2")]


def test_as_json_it_is_one_document(listed: tuple[Listing, Any]) -> None:
    listing, _ = listed
    listing.effects.append(Effect(None, "re_2", at=datetime.now(UTC)))
    code, text = told("--json", "--since", "36h")
    first, second = json.loads(text)["audits"]
    assert (code, first["effects"], second["unaccounted"], second["error"]) == (1, 0, 1, None)
    assert second["findings"][0]["external_ref"] == "re_2"
    days = datetime.fromisoformat(first["until"]) - datetime.fromisoformat(first["since"])
    assert days == timedelta(days=1)


def test_a_provider_that_cannot_be_asked_ends_with_1(listed: tuple[Listing, Any]) -> None:
    listing, _ = listed
    listing.error = ConnectionError("gone")
    code, text = told()
    assert code == 1
    assert "ConnectionError: gone" in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--since", "yesterday"], "--since"),
        (["--since", "2031-05-01T00:00:00"], "with its zone"),
        (["--since", "99999999999999999999d"], "--since"),
        (["--since", "1h", "--until", "2h"], "before --until"),
        (["--since", "400d"], "366"),
        (["nothing"], "nothing"),
        (["tip"], "list_tools"),
    ],
)
def test_what_cannot_be_audited_is_named(
    arguments: list[str], word: str, listed: Callable[..., Any]
) -> None:
    nothing: Any = None
    paying(nothing, name="tip")
    with pytest.raises(CommandError) as caught:
        told(*arguments)
    assert word in str(caught.value)
    assert EffectAudit.objects.count() == 0


def test_without_any_handler_it_says_so() -> None:
    assert told() == (0, "No tool has an audit_handler.\n")
