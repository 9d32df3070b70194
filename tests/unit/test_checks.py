"""What the environment may hold."""

import pytest
from django.core.checks import CheckMessage, Error

from agentops.checks import NAMES, judge, judge_deployment


def ids_of(found: list[CheckMessage]) -> list[str | None]:
    return [message.id for message in found]


def test_an_environment_without_settings_is_fine() -> None:
    assert judge({}) == []
    assert judge({"PATH": "/bin", "AGENTOPS_DATA_DIR": " "}) == []


def test_every_setting_is_known() -> None:
    values = dict.fromkeys(NAMES, "1")
    assert "agentops.E001" not in ids_of(judge(values))


def test_a_misspelled_setting_is_an_error_that_names_the_nearest() -> None:
    (found,) = judge({"AGENTOPS_LEASE_SECOND": "30"})
    assert isinstance(found, Error)
    assert "AGENTOPS_LEASE_SECOND " in found.msg
    assert "AGENTOPS_LEASE_SECONDS" in str(found.hint)


def test_a_setting_in_the_wrong_case_is_an_error() -> None:
    (found,) = judge({"agentops_debug": "1"})
    assert "Did you mean AGENTOPS_DEBUG?" in str(found.hint)


def test_an_unknown_setting_with_nothing_near_lists_them_all() -> None:
    (found,) = judge({"AGENTOPS_ZZZ": "1"})
    assert "AGENTOPS_APPS" in str(found.hint)
    assert "Did you mean" not in str(found.hint)


def test_a_setting_that_would_have_no_effect_yet_is_an_error() -> None:
    assert ids_of(judge({"AGENTOPS_PAYLOAD_KEYS": "x"})) == ["agentops.E002"]


@pytest.mark.parametrize("name", ["gpt-5-mini", "openai:", ":gpt-5-mini", "opnai:gpt-5-mini"])
def test_an_llm_that_nobody_serves_is_an_error(name: str) -> None:
    (found,) = judge({"AGENTOPS_LLM": name})
    assert found.id == "agentops.E008"
    assert repr(name) in found.msg


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGENTOPS_LEASE_SECONDS", "soon"),
        ("AGENTOPS_LEASE_SECONDS", "nan"),
        ("AGENTOPS_LEASE_SECONDS", "inf"),
        ("AGENTOPS_LEASE_SECONDS", "0"),
        ("AGENTOPS_LEASE_SECONDS", "-30"),
        ("AGENTOPS_LEASE_SECONDS", "86400"),
        ("AGENTOPS_SWEEP_SECONDS", "0"),
        ("AGENTOPS_SWEEP_SECONDS", "3600"),
        ("AGENTOPS_WORKER_CONCURRENCY", "0"),
        ("AGENTOPS_WORKER_CONCURRENCY", "2.5"),
        ("AGENTOPS_WORKER_CONCURRENCY", "100000"),
        ("PORT", "http"),
        ("PORT", "65536"),
        ("FLOWER_PORT", "0"),
        ("AGENTOPS_DEBUG", "perhaps"),
    ],
)
def test_an_unsafe_value_is_an_error_that_shows_it_and_the_fix(name: str, value: str) -> None:
    (found,) = judge({name: value})
    assert isinstance(found, Error)
    assert name in found.msg
    assert repr(value) in found.msg
    assert str(found.hint).startswith("Set it to ")


def test_a_very_short_lease_is_a_warning_and_no_error() -> None:
    assert ids_of(judge({"AGENTOPS_LEASE_SECONDS": "2"})) == ["agentops.W001"]


def test_web_and_flower_cannot_share_a_port() -> None:
    assert ids_of(judge({"PORT": "5555"})) == ["agentops.E004"]
    assert judge({"PORT": "5555", "FLOWER_PORT": "8000"}) == []


@pytest.mark.parametrize("hosts", ["example.org", "localhost,192.0.2.7", "*", ".localhost.example"])
def test_debugging_in_public_is_an_error(hosts: str) -> None:
    found = judge({"AGENTOPS_DEBUG": "true", "AGENTOPS_ALLOWED_HOSTS": hosts})
    assert ids_of(found) == ["agentops.E005"]


@pytest.mark.parametrize("hosts", ["", "localhost,127.0.0.1,[::1]", "a.localhost"])
def test_debugging_at_home_is_fine(hosts: str) -> None:
    assert judge({"AGENTOPS_DEBUG": "1", "AGENTOPS_ALLOWED_HOSTS": hosts}) == []


def test_public_hosts_without_debugging_are_fine() -> None:
    assert judge({"AGENTOPS_DEBUG": "0", "AGENTOPS_ALLOWED_HOSTS": "example.org"}) == []


def test_a_deployment_needs_a_secret_key() -> None:
    assert ids_of(judge_deployment({"AGENTOPS_SECRET_KEY": " "})) == ["agentops.E006"]
    assert judge_deployment({"AGENTOPS_SECRET_KEY": "x" * 50}) == []
