"""The demo's payment provider honours keys, forgets nothing, and ends with its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from examples.shop.provider_process import (
    ProviderNotStarted,
    ProviderProcess,
    provider_process,
)
from tests.acceptance.soon import SOON, eventually

ROOT = Path(__file__).resolve().parents[2]


# -- Orders, refunds, keys ------------------------------------------------------


def test_an_order_tells_what_was_paid(provider: ProviderProcess, http: httpx2.Client) -> None:
    answer = http.get(f"{provider.url}/orders/17")
    assert answer.status_code == 200
    assert answer.json()["order_id"] == "17"
    assert answer.json()["paid"] == "42.00"


def test_a_refund_is_found_by_its_operation(provider: ProviderProcess, name: str) -> None:
    assert provider.look_up(name) == []
    made = provider.place_refund(name, fence_token=7)
    assert made.status_code == 200
    assert made.json()["amount"] == "12.50"
    assert provider.look_up(name) == [made.json()]
    (effect,) = provider.effects(name)
    assert (effect.order_id, effect.cents, effect.key, effect.fence_token, effect.account) == (
        "18",
        1250,
        name,
        "7",
        "acct_main",
    )


def test_the_same_key_and_body_replay_the_first_answer(
    provider: ProviderProcess, name: str
) -> None:
    first, second = provider.place_refund(name), provider.place_refund(name)
    assert second.status_code == 200
    assert second.content == first.content
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(provider.effects(name)) == 1


def test_the_same_key_with_another_body_is_a_mismatch(provider: ProviderProcess, name: str) -> None:
    provider.place_refund(name)
    other = provider.place_refund(name, amount="12.51")
    assert other.status_code == 422
    assert other.json()["error"] == "idempotency_mismatch"
    # A tool that takes "reason" for a final rejection must not find one here.
    assert "reason" not in other.json()
    assert len(provider.effects(name)) == 1


def test_a_key_belongs_to_one_account(provider: ProviderProcess, name: str) -> None:
    for account in ("acct_one", "acct_two"):
        assert provider.place_refund(name, account=account).is_success
    assert [effect.account for effect in provider.effects(name)] == ["acct_one", "acct_two"]


def test_a_key_in_flight_for_one_account_is_free_for_another(
    provider: ProviderProcess, name: str
) -> None:
    provider.fault("hold")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(provider.place_refund, name)
        provider.wait_until_held()
        other = provider.place_refund(name, account="acct_two")
        provider.release()
        assert held.result(timeout=SOON).is_success
    assert other.is_success


def test_a_refund_without_a_key_is_executed_every_time(
    provider: ProviderProcess, name: str
) -> None:
    for _ in range(2):
        assert provider.place_refund(name, key=None).is_success
    assert len(provider.effects(name)) == 2


def test_a_refund_sent_with_only_a_key_is_found_by_the_key(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    made = http.post(
        f"{provider.url}/refunds",
        json={"order": "17", "amount": "5"},
        headers={"Idempotency-Key": name},
    )
    assert provider.look_up(name) == [made.json()]


@pytest.mark.parametrize(
    ("order", "amount", "reason"),
    [("404", "1.00", "no order 404"), ("17", "42.01", "more than the 42.00 paid")],
)
def test_a_business_rejection_has_a_reason_and_is_replayed(
    provider: ProviderProcess,
    name: str,
    order: str,
    amount: str,
    reason: str,
) -> None:
    answers = [provider.place_refund(name, order=order, amount=amount) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert reason in answers[0].json()["reason"]
    assert answers[0].content == answers[1].content
    assert provider.effects(name) == []


def test_the_whole_amount_paid_may_be_refunded(provider: ProviderProcess, name: str) -> None:
    assert provider.place_refund(name, order="17", amount="42.00").is_success


def test_twenty_callers_with_one_key_make_one_effect(provider: ProviderProcess, name: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: provider.place_refund(name), range(20)))
    assert {answer.status_code for answer in answers} <= {200, 409}
    made = {answer.json()["refund_id"] for answer in answers if answer.status_code == 200}
    assert made == {effect.refund_id for effect in provider.effects(name)}
    assert len(made) == 1


def test_twenty_callers_with_twenty_keys_make_twenty_effects(
    provider: ProviderProcess, name: str
) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda n: provider.place_refund(name, key=f"{name}-{n}"), range(20))
        )
    assert {answer.status_code for answer in answers} == {200}
    assert len(provider.effects(name)) == 20


def test_a_provider_that_ignores_keys_executes_every_request(tmp_path: Path) -> None:
    with provider_process(tmp_path / "ledger.sqlite3", ignore_keys=True) as careless:
        first, second = careless.place_refund("op"), careless.place_refund("op")
        assert first.json()["refund_id"] != second.json()["refund_id"]
        assert len(careless.effects("op")) == 2
        assert [seen.key for seen in careless.requests()] == ["op", "op"]


# -- The ledger -----------------------------------------------------------------


def test_every_request_is_noted_with_what_it_was_answered(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    before = len(provider.requests())
    provider.place_refund(name, fence_token=7)
    provider.place_refund(name)
    provider.look_up(name)
    http.get(f"{provider.url}/orders/none")
    provider.place_refund(name, amount="none")
    provider.fault("lose_answer")
    with pytest.raises(httpx2.RemoteProtocolError):
        provider.place_refund(name)
    seen = provider.requests()[before:]
    assert [(one.method, one.path, one.outcome, one.status, one.fault) for one in seen] == [
        ("POST", "/refunds", "answered", 200, None),
        ("POST", "/refunds", "replayed", 200, None),
        ("GET", "/refunds", "answered", 200, None),
        ("GET", "/orders/none", "answered", 404, None),
        ("POST", "/refunds", "answered", 400, None),
        ("POST", "/refunds", "closed", None, "lose_answer"),
    ]
    assert (seen[0].key, seen[0].fence_token, seen[2].key) == (name, "7", None)
    assert seen[2].query == f"operation_id={name}"
    assert provider.requests(path="/refunds", method="GET")[-1] == seen[2]


def test_the_ledger_counts_the_effects_of_each_operation(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    for key in ("a", "b"):
        provider.place_refund(name, key=f"{name}-{key}")
    assert http.get(f"{provider.url}/ledger").json()["counts"][name] == 2


def test_nothing_that_was_answered_is_forgotten_by_sigkill(tmp_path: Path) -> None:
    with provider_process(tmp_path / "ledger.sqlite3") as provider:
        made = [provider.place_refund(f"op-{n}").json()["refund_id"] for n in range(5)]
        provider.fault("hold", after_commit=True)
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(provider.place_refund, "held")
            provider.wait_until_held()
            url = provider.url
            provider.kill()
            assert isinstance(held.exception(timeout=SOON), httpx2.TransportError)
        provider.start()
        assert provider.url == url
        assert [one.refund_id for one in provider.effects()][:5] == made
        assert len(provider.effects("held")) == 1
        assert [one.outcome for one in provider.requests()] == ["answered"] * 5 + ["pending"]
        # The key is not "in flight" for ever, and still stands for the same refund.
        again = provider.place_refund("held")
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.json()["refund_id"] == provider.effects("held")[0].refund_id


def test_a_storm_of_kills_leaves_one_effect_per_key(tmp_path: Path) -> None:
    calm = threading.Event()

    def keep_refunding(provider: ProviderProcess) -> list[str]:
        done: list[str] = []
        while not calm.is_set():
            done.append(uuid.uuid4().hex)
            while not succeeds(provider, done[-1]):
                time.sleep(0.01)  # the provider is down
        return done

    def succeeds(provider: ProviderProcess, operation_id: str) -> bool:
        try:
            return provider.place_refund(operation_id).is_success
        except httpx2.TransportError:
            return False

    with provider_process(tmp_path / "ledger.sqlite3") as shaken, ThreadPoolExecutor(8) as pool:
        callers = [pool.submit(keep_refunding, shaken) for _ in range(8)]
        try:
            for _ in range(3):
                shaken.wait_for_requests(len(shaken.requests()) + 5)
                shaken.kill()
                shaken.start()
        finally:
            calm.set()
        done = [name for caller in callers for name in caller.result(timeout=SOON)]
        assert sorted(effect.operation_id for effect in shaken.effects()) == sorted(done)


# -- The process ----------------------------------------------------------------


def test_a_ledger_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    no_ledger = tmp_path / "ledger.sqlite3"
    no_ledger.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(ProviderNotStarted, match="cannot be used: file is not a database"):
        ProviderProcess(no_ledger).start()


def test_a_port_in_use_is_named(provider: ProviderProcess, tmp_path: Path) -> None:
    with pytest.raises(ProviderNotStarted, match=f"port {provider.port}: "):
        ProviderProcess(tmp_path / "ledger.sqlite3", port=provider.port).start()


def test_the_command_writes_its_port_and_ends_well_at_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.shop.provider", "--port", "0"]
    command += ["--ledger", str(tmp_path / "new" / "ledger.sqlite3")]
    command += ["--port-file", str(tmp_path / "port")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        port = (tmp_path / "port").read_text().strip()
        assert f"http://127.0.0.1:{port}," in said
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SOON) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_the_provider_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path;"
        "from examples.shop.provider_process import ProviderProcess;"
        "provider = ProviderProcess(Path(sys.argv[1])).start();"
        "print(provider.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "ledger.sqlite3")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    assert eventually(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    """Whether the process lives; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
