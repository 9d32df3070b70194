"""Objects in S3 are created once, whatever is lost on the way, and none is overwritten."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import (
    AnswerInstead,
    FaultProxy,
    HoldAnswer,
    LandLate,
    LoseAnswer,
    ResetBefore,
)
from tests.conformance.targets.loopback import free_port
from tests.conformance.targets.moto_server import ENVIRONMENT, MotoServer
from tests.conformance.targets.refusing import RefusingAws
from tools.catalog.aws_s3 import put_object_tool
from tools.outcome import Committed, Refused, Unknown, Unsent
from tools.registry import get_tool

_numbers = count(1)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with MotoServer(log_dir=tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def proxy(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with FaultProxy(moto.url) as fault_proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", fault_proxy.url)
        yield fault_proxy


@pytest.fixture
def bucket(moto: MotoServer) -> str:
    return moto.create_bucket(f"reports-{next(_numbers)}")


@pytest.fixture
def put(bucket: str, proxy: FaultProxy) -> Operation:
    """One operation that creates an object `a`."""
    put_object_tool(bucket=bucket)
    return Operation("put_object", {"key": "a", "body": "hello"})


def test_an_object_is_created_with_its_version(
    put: Operation, moto: MotoServer, bucket: str
) -> None:
    outcome = put.send()
    assert isinstance(outcome, Committed)
    stored = moto.client("s3").get_object(Bucket=bucket, Key="a")
    assert stored["Body"].read() == b"hello"
    assert outcome.external_ref == stored["VersionId"]
    assert stored["Metadata"]["agentops-operation"] == put.id


def test_an_answer_lost_after_the_commit_is_unknown_and_found(
    put: Operation, moto: MotoServer, bucket: str, proxy: FaultProxy
) -> None:
    proxy.next(LoseAnswer(), method="PUT")
    assert isinstance(put.send(), Unknown)
    found = put.look_up()
    assert found.verdict == "committed"
    assert found.result["key"] == "a"
    assert moto.versions(bucket, "a") == 1


def test_a_repeat_after_a_lost_answer_adopts_the_first_object(
    put: Operation, moto: MotoServer, bucket: str, proxy: FaultProxy
) -> None:
    proxy.next(LoseAnswer(reset=True), method="PUT")
    assert isinstance(put.send(), Unknown)
    repeated = put.send()
    assert isinstance(repeated, Committed)
    assert moto.versions(bucket, "a") == 1
    assert repeated.external_ref == put.look_up().external_ref


def test_a_write_that_lands_after_the_look_up_is_still_one_object(
    put: Operation, moto: MotoServer, bucket: str, proxy: FaultProxy
) -> None:
    proxy.next(LandLate(), method="PUT")
    assert isinstance(put.send(), Unknown)
    assert put.look_up().verdict == "not_found"
    assert isinstance(put.send(), Committed)
    proxy.release()
    proxy.wait_until_forwarded(2, method="PUT")
    assert [one.status for one in proxy.seen(method="PUT")] == [200, 412]
    assert moto.versions(bucket, "a") == 1


def test_an_answer_after_the_deadline_is_unknown_and_found(
    put: Operation, moto: MotoServer, bucket: str, proxy: FaultProxy
) -> None:
    proxy.next(HoldAnswer(), method="PUT")
    assert isinstance(put.send(seconds=1.0), Unknown)
    assert put.look_up().verdict == "committed"
    proxy.release()
    assert moto.versions(bucket, "a") == 1


@pytest.mark.parametrize(
    ("status", "body"), [(200, b""), (200, b"<html>"), (500, b""), (503, b"<html>")]
)
def test_an_answer_that_proves_nothing_is_unknown_and_not_sent_again_by_boto(
    put: Operation, moto: MotoServer, bucket: str, proxy: FaultProxy, status: int, body: bytes
) -> None:
    proxy.next(AnswerInstead(status=status, body=body), method="PUT", times=3)
    assert isinstance(put.send(), Unknown)
    assert proxy.forwarded(method="PUT") == 1
    assert moto.versions(bucket, "a") == 1


@pytest.mark.parametrize("status", [403, 404, 409, 429])
def test_a_refusal_that_is_not_signed_by_aws_is_unknown(
    put: Operation, proxy: FaultProxy, status: int
) -> None:
    proxy.next(AnswerInstead(status=status, body=b"<html>gateway</html>"), method="PUT")
    assert isinstance(put.send(), Unknown)
    assert put.look_up().verdict == "committed"


def test_an_object_of_somebody_else_is_left_alone_and_refuses_the_write(
    put: Operation, moto: MotoServer, bucket: str
) -> None:
    moto.client("s3").put_object(Bucket=bucket, Key="a", Body=b"theirs")
    outcome = put.send()
    assert isinstance(outcome, Refused)
    assert "was not written by this operation" in outcome.reason
    assert put.look_up().verdict == "indeterminate"
    assert moto.client("s3").get_object(Bucket=bucket, Key="a")["Body"].read() == b"theirs"


def test_another_operation_with_the_same_key_and_body_is_not_taken_for_ours(
    put: Operation, moto: MotoServer, bucket: str
) -> None:
    assert isinstance(put.send(), Committed)
    other = Operation("put_object", dict(put.arguments))
    assert isinstance(other.send(), Refused)
    assert other.look_up().verdict == "indeterminate"
    assert moto.versions(bucket, "a") == 1


def test_an_object_that_was_replaced_goes_to_a_person(
    put: Operation, moto: MotoServer, bucket: str, proxy: FaultProxy
) -> None:
    proxy.next(LoseAnswer(), method="PUT")
    put.send()
    moto.client("s3").put_object(Bucket=bucket, Key="a", Body=b"theirs")
    found = put.look_up()
    assert found.verdict == "indeterminate"
    assert not found.failed


def test_a_deleted_object_is_not_called_never_written(
    put: Operation, moto: MotoServer, bucket: str, proxy: FaultProxy
) -> None:
    proxy.next(LoseAnswer(), method="PUT")
    put.send()
    moto.client("s3").delete_object(Bucket=bucket, Key="a")
    assert put.look_up().verdict == "indeterminate"


def test_a_refused_connection_is_not_sent(
    put: Operation, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")
    assert isinstance(put.send(), Unsent)
    found = put.look_up()
    assert (found.verdict, found.failed) == ("indeterminate", True)


def test_a_reset_before_anything_was_read_is_unknown(put: Operation, proxy: FaultProxy) -> None:
    proxy.next(ResetBefore(), method="PUT")
    assert isinstance(put.send(), Unknown)
    assert proxy.forwarded(method="PUT") == 0
    assert put.look_up().verdict == "not_found"


def test_missing_credentials_are_not_sent(
    put: Operation, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert isinstance(put.send(), Unsent)
    assert proxy.forwarded() == 0


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (400, "ExpiredToken", Unsent),
        (403, "AccessDenied", Refused),
        (400, "RequestTimeout", Unknown),
        (409, "ConditionalRequestConflict", Unknown),
        (503, "SlowDown", Unknown),
        (500, "InternalError", Unknown),
    ],
)
def test_what_aws_answers_counts_for_what_it_proves(
    put: Operation, monkeypatch: pytest.MonkeyPatch, status: int, code: str, outcome: type
) -> None:
    with RefusingAws(status=status, code=code) as aws:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", aws.url)
        assert isinstance(put.send(), outcome)
    assert aws.asked == ["PUT"]


def test_a_bucket_in_another_region_is_not_written_to_behind_our_back(
    put: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RefusingAws(status=301, code="PermanentRedirect") as aws:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", aws.url)
        assert isinstance(put.send(), Unsent)
    assert aws.asked.count("PUT") == 1


def test_a_missing_bucket_is_refused(proxy: FaultProxy) -> None:
    put_object_tool(bucket="nobody-has-this")
    outcome = Operation("put_object", {"key": "a", "body": "x"}).send()
    assert isinstance(outcome, Refused)
    assert "NoSuchBucket" in outcome.reason


def test_a_name_that_boto_refuses_is_refused_before_anything_is_sent(proxy: FaultProxy) -> None:
    put_object_tool(bucket="no spaces allowed")
    assert isinstance(Operation("put_object", {"key": "a", "body": "x"}).send(), Refused)
    assert proxy.forwarded() == 0


def test_a_look_up_that_is_not_answered_is_no_negative(put: Operation, proxy: FaultProxy) -> None:
    proxy.next(AnswerInstead(status=500), method="HEAD")
    assert put.look_up().failed
    proxy.next(AnswerInstead(status=403, body=b""), method="HEAD")
    assert put.look_up().failed


def test_the_moments_of_the_send_are_noted(put: Operation, proxy: FaultProxy) -> None:
    call = put.call(seconds=10)
    get_tool("put_object").function(call, **get_tool("put_object").bind(put.arguments))
    assert set(call.window.marks) == {"first_byte", "closed"}
