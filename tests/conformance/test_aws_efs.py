"""A file system in EFS is created once per operation, whatever is lost on the way."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import (
    AnswerInstead,
    FaultProxy,
    HalfBody,
    HoldAnswer,
    LandLate,
    LoseAnswer,
    ResetBefore,
)
from tests.conformance.targets.loopback import free_port
from tests.conformance.targets.moto_server import ENVIRONMENT, MotoServer
from tests.conformance.targets.refusing import RefusingAws
from tools.catalog.aws_efs import create_file_system_tool
from tools.outcome import Committed, Refused, Unknown, Unsent


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with MotoServer(log_dir=tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def proxy(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with FaultProxy(moto.url) as fault_proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EFS", fault_proxy.url)
        yield fault_proxy


@pytest.fixture
def create(proxy: FaultProxy) -> Operation:
    create_file_system_tool()
    return Operation("create_file_system", {"label": "scratch"})


def made(moto: MotoServer, operation: Operation) -> list[Any]:
    """The file systems that exist under the operation's token."""
    return [one for one in moto.file_systems() if one["CreationToken"] == operation.id]


def test_a_file_system_is_created_as_asked(create: Operation, moto: MotoServer) -> None:
    outcome = create.send()
    assert isinstance(outcome, Committed)
    (one,) = made(moto, create)
    assert outcome.external_ref == one["FileSystemId"]
    assert (one["Name"], one["Encrypted"]) == ("scratch", True)


def test_an_answer_lost_after_the_commit_is_unknown_and_found(
    create: Operation, moto: MotoServer, proxy: FaultProxy
) -> None:
    proxy.next(LoseAnswer(), method="POST")
    assert isinstance(create.send(), Unknown)
    found = create.look_up()
    (one,) = made(moto, create)
    assert (found.verdict, found.external_ref) == ("committed", one["FileSystemId"])


@pytest.mark.parametrize(
    "fault", [LoseAnswer(reset=True), HalfBody(), AnswerInstead(500), AnswerInstead(200)]
)
def test_a_repeat_after_a_lost_answer_adopts_the_first_file_system(
    create: Operation, moto: MotoServer, proxy: FaultProxy, fault: LoseAnswer | HalfBody
) -> None:
    proxy.next(fault, method="POST")
    assert isinstance(create.send(), Unknown)
    repeated = create.send()
    assert isinstance(repeated, Committed)
    (one,) = made(moto, create)
    assert repeated.external_ref == one["FileSystemId"]
    assert [seen.status for seen in proxy.seen(method="POST")] == [201, 409]


def test_a_request_that_lands_after_the_look_up_is_still_one_file_system(
    create: Operation, moto: MotoServer, proxy: FaultProxy
) -> None:
    proxy.next(LandLate(), method="POST")
    assert isinstance(create.send(), Unknown)
    assert create.look_up().verdict == "not_found"
    assert isinstance(create.send(), Committed)
    proxy.release()
    proxy.wait_until_forwarded(2, method="POST")
    assert len(made(moto, create)) == 1


def test_an_answer_after_the_deadline_is_unknown_and_found(
    create: Operation, proxy: FaultProxy
) -> None:
    proxy.next(HoldAnswer(), method="POST")
    assert isinstance(create.send(seconds=1.0), Unknown)
    assert create.look_up().verdict == "committed"
    proxy.release()


def test_a_file_system_under_the_token_that_differs_goes_to_a_person(
    create: Operation, moto: MotoServer
) -> None:
    moto.client("efs").create_file_system(CreationToken=create.id, Encrypted=False)
    outcome = create.send()
    assert isinstance(outcome, Unknown)
    assert "Encrypted" in outcome.reason
    found = create.look_up()
    assert (found.verdict, found.failed) == ("indeterminate", False)
    assert len(made(moto, create)) == 1


def test_a_file_system_of_somebody_else_is_not_taken_for_ours(
    create: Operation, moto: MotoServer
) -> None:
    moto.client("efs").create_file_system(CreationToken="somebody-else", Encrypted=True)
    assert create.look_up().verdict == "not_found"


def test_a_refused_connection_is_not_sent(
    create: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EFS", f"http://127.0.0.1:{free_port()}")
    assert isinstance(create.send(), Unsent)
    assert create.look_up().failed


def test_a_reset_before_anything_was_read_is_unknown(create: Operation, proxy: FaultProxy) -> None:
    proxy.next(ResetBefore(), method="POST")
    assert isinstance(create.send(), Unknown)
    assert create.look_up().verdict == "not_found"


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (400, "BadRequest", Refused),
        (403, "FileSystemLimitExceeded", Refused),
        (400, "ThrottlingException", Unknown),
        (403, "ExpiredTokenException", Unsent),
        (503, "InsufficientThroughputCapacity", Unknown),
    ],
)
def test_what_efs_answers_counts_for_what_it_proves(
    create: Operation, monkeypatch: pytest.MonkeyPatch, status: int, code: str, outcome: type
) -> None:
    with RefusingAws(status=status, code=code) as aws:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EFS", aws.url)
        assert isinstance(create.send(), outcome)
    assert aws.asked == ["POST"]


@pytest.mark.parametrize("fault", [AnswerInstead(status=500), AnswerInstead(403), HalfBody()])
def test_a_look_up_that_is_not_answered_is_no_negative(
    create: Operation, proxy: FaultProxy, fault: AnswerInstead | HalfBody
) -> None:
    create.send()
    proxy.next(fault, method="GET")
    assert create.look_up().failed
