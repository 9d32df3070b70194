"""What the settings of notifications may be."""

import pytest
from django.core.checks import CheckMessage

from agentops.checks import judge

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOOK = {"AGENTOPS_WEBHOOK_URLS": "https://hooks.example.com/a", "AGENTOPS_WEBHOOK_SECRET": SECRET}
MAIL = {"AGENTOPS_EMAIL_HOST": "mail.example.com", "AGENTOPS_EMAIL_FROM": "a@example.com"}


def ids_of(found: list[CheckMessage]) -> list[str | None]:
    return [message.id for message in found]


@pytest.mark.parametrize(
    "urls",
    [
        "https://hooks.example.com/a",
        "https://hooks.example.com/a, https://hooks.example.com/b?c=d",
        "http://127.0.0.1:8080/hook",
        "http://localhost/hook,http://[::1]:9/hook",
    ],
)
def test_encrypted_and_local_receivers_are_fine(urls: str) -> None:
    assert judge({**HOOK, "AGENTOPS_WEBHOOK_URLS": urls}) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/a",
        "http://10.0.0.7/a",
        "http://localhost.example.com/a",
        "https://user:geheim@hooks.example.com/a",
        "https://hooks.example.com/a#part",
        "ftp://hooks.example.com/a",
        "hooks.example.com/a",
        "https:///a",
        "https://hooks.example.com:port/a",
        "https://[hooks/a",
        "https://hooks.example.com/a b",
        f"https://hooks.example.com/{'a' * 500}",
    ],
)
def test_a_receiver_that_is_not_safe_to_tell_is_an_error_that_shows_no_secret(url: str) -> None:
    (found,) = judge({**HOOK, "AGENTOPS_WEBHOOK_URLS": f"https://one.example.com/,{url}"})
    assert found.id == "agentops.E021"
    assert "number 2" in found.msg
    assert "geheim" not in str(found)
    assert "https://host/path" in str(found.hint)


def test_there_may_be_only_a_few_receivers() -> None:
    urls = [f"https://hooks.example.com/{number}" for number in range(9)]
    assert judge({**HOOK, "AGENTOPS_WEBHOOK_URLS": ",".join(urls[:8] * 2)}) == []
    found = judge({**HOOK, "AGENTOPS_WEBHOOK_URLS": ",".join(urls)})
    assert ids_of(found) == ["agentops.E021"]


@pytest.mark.parametrize(
    "secret",
    ["", "geheim", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_dG9vIHNob3J0", "whsec_!!"],
)
def test_receivers_need_a_real_secret_and_are_told_how_to_make_one(secret: str) -> None:
    (found,) = judge({**HOOK, "AGENTOPS_WEBHOOK_SECRET": secret})
    assert found.id == "agentops.E022"
    assert "secrets.token_bytes" in str(found.hint)
    assert not secret or secret == "whsec_" or secret not in str(found)


@pytest.mark.parametrize(
    "url",
    ["agents.example.com", "ftp://a.example", "https://a.example/?q=1", "https://u@a.example"],
)
def test_links_need_an_address_that_leads_somewhere(url: str) -> None:
    assert ids_of(judge({"AGENTOPS_BASE_URL": url})) == ["agentops.E020"]
    assert judge({"AGENTOPS_BASE_URL": "http://10.0.0.7:8000/agents/"}) == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"AGENTOPS_EMAIL_TLS": "SSL", "AGENTOPS_EMAIL_PORT": "465"},
        {"AGENTOPS_EMAIL_USER": "shop", "AGENTOPS_EMAIL_PASSWORD": "geheim"},
        {"AGENTOPS_EMAIL_TLS": "off"},
    ],
)
def test_mail_that_can_leave_safely_is_fine(given: dict[str, str]) -> None:
    assert judge({**MAIL, **given}) == []


@pytest.mark.parametrize(
    "given",
    [
        {"AGENTOPS_EMAIL_FROM": ""},
        {"AGENTOPS_EMAIL_FROM": "agents"},
        {"AGENTOPS_EMAIL_TLS": "yes"},
        {"AGENTOPS_EMAIL_USER": "shop"},
        {"AGENTOPS_EMAIL_PASSWORD": "geheim"},
        {
            "AGENTOPS_EMAIL_TLS": "off",
            "AGENTOPS_EMAIL_USER": "shop",
            "AGENTOPS_EMAIL_PASSWORD": "geheim",
        },
        {"AGENTOPS_EMAIL_HOST": ""},
    ],
)
def test_mail_that_cannot_leave_or_would_give_its_login_away_is_an_error(
    given: dict[str, str],
) -> None:
    (found,) = judge({**MAIL, **given})
    assert found.id == "agentops.E023"
    assert "geheim" not in str(found)
    assert found.hint


def test_a_login_in_clear_to_this_very_machine_is_fine() -> None:
    login = {"AGENTOPS_EMAIL_USER": "shop", "AGENTOPS_EMAIL_PASSWORD": "geheim"}
    given = {**MAIL, **login, "AGENTOPS_EMAIL_TLS": "off", "AGENTOPS_EMAIL_HOST": "127.0.0.1"}
    assert judge(given) == []


def test_a_port_is_one() -> None:
    assert ids_of(judge({**MAIL, "AGENTOPS_EMAIL_PORT": "smtp"})) == ["agentops.E003"]
