"""Callers elsewhere at two web processes, over HTTP, at the same time: one call per key."""

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from django.contrib.auth.models import User

from agentops import processes
from agentops.tokens import issue_token
from examples.shop.provider_process import ProviderProcess
from runs.access import CALL_EVERY_TOOL, operator
from runs.commands import pause_run
from runs.models import AgentRun, GatewayCall, ToolOperation
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.forked import fork_worker
from tests.database.kit import expire_lease
from tests.processes import Program, environment, of_this_test, wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.django_db(transaction=True)]

CALLERS: Final = 50
THREADS, CALLS = 6, 3
# In a call that another one waits for: the provider answers no sooner.
HELD_SECONDS: Final = 0.3


class Webs:
    """Two web processes of one database, started again where a test has killed them."""

    def __init__(self, env: dict[str, str], logs: Path) -> None:
        self._env, self._logs = env, logs
        self._started = ExitStack()
        self._webs: dict[int, tuple[Program, str]] = {}

    def __getitem__(self, number: int) -> tuple[Program, str]:
        if number not in self._webs or not self._webs[number][0].lives:
            self._webs[number] = self._start(f"web{number}-{len(list(self._logs.iterdir()))}")
        return self._webs[number]

    def urls(self) -> list[str]:
        return [self[number][1] for number in (0, 1)]

    def close(self) -> None:
        self._started.close()
        for web, _ in self._webs.values():
            print(web.said)

    def _start(self, name: str) -> tuple[Program, str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        arguments = ("-m", "uvicorn", *processes.web(host="127.0.0.1", port=port))
        web = Program(*arguments, env=self._env, log=self._logs / f"{name}.log", name=name)
        self._started.enter_context(web)
        return web, f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    running = Providers(tmp_path_factory.mktemp("books"))
    with running.borrowed() as provider:
        yield provider
    running.close()


@pytest.fixture(scope="module")
def module_webs(
    books: ProviderProcess, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Webs]:
    more = {
        "SHOP_PAYMENTS_URL": books.url,
        "AGENTOPS_GATEWAY_CONCURRENCY": "4",
        "AGENTOPS_RATE_PER_MINUTE": "0",
    }
    # A call of a busy machine is not taken for one whose worker died.
    env = environment(of_this_test(), lease_seconds=30, more=more)
    webs = Webs(env, tmp_path_factory.mktemp("webs"))
    yield webs
    webs.close()


@pytest.fixture
def urls(module_webs: Webs, start_agent: StartRun) -> list[str]:
    found = module_webs.urls()
    for url in found:
        wait_until(lambda url=url: _answers(url), what=f"{url} answers", seconds=60)
    return found


@pytest.fixture
def headers(transactional_db: None) -> dict[str, str]:
    user = User.objects.create(username="agent elsewhere")
    issued = issue_token(user=user, name="agent", scopes=(CALL_EVERY_TOOL,))
    return {"Authorization": f"Token {issued.secret}"}


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/healthz", timeout=1).status_code == 200
    except httpx2.HTTPError:
        return False


def refund(
    url: str, headers: dict[str, str], key: str, *, cents: int = 99, **more: Any
) -> httpx2.Response:
    # A tool with time, for a machine that has much to do.
    arguments = {"order_id": "17", "amount": f"0.{cents:02}"}
    body = {"tool": "patient_refund", "arguments": arguments, **more}
    return httpx2.post(
        f"{url}/api/v1/operations/",
        json=body,
        headers={**headers, "Idempotency-Key": key},
        timeout=60,
    )


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    """What `act` returned in each of so many threads, which begin together."""
    together = threading.Barrier(count)

    def begin(number: int) -> Any:
        together.wait()
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_fifty_callers_with_one_key_at_two_processes_are_one_effect(
    urls: list[str], headers: dict[str, str], books: ProviderProcess
) -> None:
    before = len(books.effects())
    books.fault(path="/refunds", method="POST", kind="slow", seconds=HELD_SECONDS)
    answers = at_once(CALLERS, lambda n: refund(urls[n % 2], headers, "one key"))
    told = Counter(answer.status_code for answer in answers)
    assert set(told) <= {200, 409}, [answer.text for answer in answers][:3]
    assert told[200] >= 1
    done = [answer for answer in answers if answer.status_code == 200]
    assert len({answer.json()["operation_id"] for answer in done}) == 1
    assert {answer.json()["status"] for answer in done} == {"COMMITTED"}
    # Whoever did not make it is told so.
    firsts = [one for one in done if "Idempotent-Replayed" not in one.headers]
    assert len(firsts) == 1
    assert len(books.effects()) == before + 1
    assert (GatewayCall.objects.count(), AgentRun.objects.count()) == (1, 1)
    # Who met the first in flight and comes again is answered.
    again = refund(urls[1], headers, "one key")
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert again.json()["result"] == firsts[0].json()["result"]
    assert refund(urls[0], headers, "one key", cents=98).status_code == 422


def test_first_calls_of_one_thread_at_two_processes_are_one_run(
    urls: list[str], headers: dict[str, str], books: ProviderProcess
) -> None:
    before = len(books.effects())

    def call(number: int) -> httpx2.Response:
        named = {"thread": "one job", "cents": number + 1, "wait_seconds": 50}
        return refund(urls[number % 2], headers, f"k{number}", **named)

    answers = at_once(8, call)
    assert {answer.status_code for answer in answers} == {200}, [one.text for one in answers]
    assert AgentRun.objects.count() == 1
    assert len(books.effects()) == before + 8


def test_threads_go_on_side_by_side_and_each_in_its_order(
    urls: list[str], headers: dict[str, str], books: ProviderProcess
) -> None:
    before = len(books.effects())

    def converse(thread: int) -> list[str]:
        made = []
        for number in range(CALLS):
            named = {"thread": f"job {thread}", "cents": number + 1, "wait_seconds": 50}
            # Each next one at the other process: the run goes from hand to hand.
            url = urls[(thread + number) % 2]
            answer = refund(url, headers, f"{thread}-{number}", step=number, **named)
            assert answer.status_code == 200, answer.text
            made.append(answer.json()["operation_id"])
        return made

    made = at_once(THREADS, converse)
    assert AgentRun.objects.count() == THREADS
    assert len(books.effects()) == before + THREADS * CALLS
    for ids in made:
        steps = ToolOperation.objects.filter(id__in=ids).order_by("step_number")
        assert list(steps.values_list("id", flat=True)) == ids


def test_what_one_process_accepts_while_the_other_holds_its_run_is_done_by_the_other(
    urls: list[str], headers: dict[str, str], books: ProviderProcess
) -> None:
    """No worker and no sweep is there to find it."""
    assert refund(urls[0], headers, "k0", thread="t").status_code == 200
    books.fault(path="/refunds", method="POST", kind="hold", after_commit=True)
    named: dict[str, Any] = {"thread": "t", "wait_seconds": 50}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(refund, urls[0], headers, "k1", cents=97, **named)
        books.wait_until_held()
        second = pool.submit(refund, urls[1], headers, "k2", cents=96, **named)
        wait_until(lambda: GatewayCall.objects.filter(key="k2").exists(), what="k2 is accepted")
        books.release()
        answers = [one.result() for one in (first, second)]
    assert [one.json()["status"] for one in answers] == ["COMMITTED"] * 2


def test_a_web_process_killed_during_a_call_leaves_it_to_a_worker_and_its_caller_to_another(
    module_webs: Webs,
    urls: list[str],
    headers: dict[str, str],
    books: ProviderProcess,
    forks: None,
    new_log: NewLog,
) -> None:
    before = len(books.effects())
    books.fault(path="/refunds", method="POST", kind="hold", after_commit=True)
    lost: list[Exception] = []

    def call() -> None:
        try:
            refund(urls[0], headers, "k1")
        except httpx2.HTTPError as error:
            lost.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    books.wait_until_held()
    module_webs[0][0].kill()
    caller.join()
    assert len(lost) == 1
    books.release()
    known = GatewayCall.objects.get()
    assert known.run_id is not None
    waiting = refund(urls[1], headers, "k1", wait_seconds=0)
    assert (waiting.status_code, known.taken_at is not None) == (409, True)
    expire_lease(AgentRun.objects.get(id=known.run_id))
    assignment = Assignment(run_id=known.run_id, provider_url=books.url, log=str(new_log()))
    with fork_worker(assignment) as worker:
        assert worker.wait(seconds=60) == 0, worker.said
    again = refund(urls[1], headers, "k1")
    assert (again.status_code, again.json()["status"]) == (200, "COMMITTED")
    assert again.headers["Idempotent-Replayed"] == "true"
    books.wait_until_landed()
    assert len(books.effects()) == before + 1


def test_a_web_process_that_is_told_to_end_answers_everybody(
    module_webs: Webs, start_agent: StartRun, headers: dict[str, str], books: ProviderProcess
) -> None:
    # The one that the test before has left.
    web, url = module_webs[1]
    wait_until(lambda: _answers(url), what=f"{url} answers", seconds=60)
    assert refund(url, headers, "w1", thread="t").status_code == 200
    pause_run(actor=operator(), run_id=AgentRun.objects.get().pk)
    books.fault(path="/refunds", method="POST", kind="hold", after_commit=True)
    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(refund, url, headers, "w2", thread="t", cents=98, wait_seconds=50)
        under_way = pool.submit(refund, url, headers, "w3", cents=97, wait_seconds=50)
        books.wait_until_held()
        wait_until(lambda: GatewayCall.objects.filter(key="w2").exists(), what="w2 is accepted")
        web.terminate()
        books.release()
        assert (held.result().status_code, under_way.result().status_code) == (202, 200)
    web.wait(seconds=60)
    assert "CancelledError" not in web.said
    assert "worker_end_not_reported" not in web.said
    # It has let go what it held.
    assert not AgentRun.objects.exclude(lease_owner="").exists()
