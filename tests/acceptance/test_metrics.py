"""`/metrics` of two web processes, beside two workers that both end: nothing is lost or doubled."""

import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import celery
import httpx2
import pytest
from django.contrib.auth.models import User
from django.db.models import Sum

from agentops import processes
from agentops.tokens import issue_token
from runs import sweeps
from runs.access import CALL_EVERY_TOOL, RUNS_WRITE
from runs.models import AgentRun, StepAttempt, Worker
from runs.slo import rolling
from tests.database.scraping import Scrape
from tests.processes import Program, environment, of_this_test, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

AGENT = "adder"
# For a machine that is busy with something else.
PATIENCE = 60.0


@dataclass(frozen=True)
class Stack:
    """Two web processes by address, and two workers, one of which forks."""

    webs: tuple[str, str]
    workers: tuple[Program, Program]

    def have_both_worked(self) -> bool:
        at_work = set(
            Worker.objects.filter(
                release__isnull=False, name__in=StepAttempt.objects.values("worker")
            ).values_list("pid", flat=True)
        )
        threads, _ = self.workers
        return threads.pid in at_work and len(at_work) > 1

    def scrape(self) -> list[Scrape]:
        answers = [httpx2.get(f"{url}/metrics", timeout=PATIENCE) for url in self.webs]
        assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
        return [Scrape(answer.text) for answer in answers]


@pytest.fixture
def stack(transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    env = environment(of_this_test(), apps="tests.acceptance.countedapp", lease_seconds=PATIENCE)
    with ExitStack() as running:

        def start(name: str, *arguments: str, **more: str) -> Program:
            log = tmp_path / f"{name}.log"
            program = Program("-m", *arguments, env=env | more, log=log, name=name)
            return running.enter_context(program)

        webs = [(start(f"web-{port}", "uvicorn", *_web(port)), port) for port in _free_ports()]
        last = {"COUNTS_AT_END": "1"}
        threads = start("threads", "celery", *processes.worker(name="threads"), **last)
        # Named so, because the name prefork leaves the pool of the settings in place.
        forks = ("--pool=processes", "--concurrency=2")
        forking = start("forking", "celery", *processes.worker(name="forking"), *forks, **last)
        urls = []
        for web, port in webs:
            urls.append(f"http://127.0.0.1:{port}")
            wait_until(
                lambda url=urls[-1]: _answers(url), what=f"{web.name} answers", seconds=PATIENCE
            )
        at_work = Worker.objects.filter(release__isnull=False)
        wait_until(lambda: at_work.count() == 3, what="workers are at work", seconds=PATIENCE)
        yield Stack(webs=(urls[0], urls[1]), workers=(threads, forking))
    celery.current_app.control.purge()


def test_both_web_processes_tell_what_all_processes_did(stack: Stack) -> None:
    asked = Asked(stack)
    wait_until(
        lambda: asked.once_more() and stack.have_both_worked(),
        what="both have worked",
        seconds=PATIENCE,
    )
    for worker in stack.workers:
        worker.terminate()
        assert worker.wait(seconds=PATIENCE) == 0, worker.said
    # Here, so as not to wait for beat.
    rolling.run_once()
    # A run's token grew with each claim of it.
    claims = AgentRun.objects.aggregate(Sum("fence_token"))["fence_token__sum"]
    assert claims >= asked.runs + asked.calls

    def all_told() -> bool:
        # Web processes add what they counted every few seconds.
        return [scraped("claims_total") for scraped in stack.scrape()] == [claims, claims]

    wait_until(all_told, what=f"{claims} claims are told of", seconds=PATIENCE)
    one, two = stack.scrape()
    assert dict(one.counters()) == dict(two.counters())
    assert one("calls_total", outcome="committed") == asked.runs + asked.calls
    assert one("runs_completed_total", agent=AGENT) == asked.runs
    assert one("operations_committed_total", agent=AGENT, tool="add") == asked.runs
    assert one("operations_committed_total", agent="external", tool="add") == asked.calls
    assert one("runs_active", agent=AGENT) == 0
    assert one("workers_alive") == 0


class Asked:
    """Runs, and calls from outside, that both web processes were asked for: so many so far."""

    def __init__(self, stack: Stack) -> None:
        self.runs = self.calls = 0
        self._webs = stack.webs
        user = User.objects.create(username="robot")
        token = issue_token(user=user, name="robot", scopes=(CALL_EVERY_TOOL, RUNS_WRITE))
        self._headers = {"Authorization": f"Token {token.secret}"}

    def once_more(self) -> bool:
        """Ask each web process for some of both; returns when they have ended."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._start, self._webs * 4))
            list(pool.map(self._call, self._webs * 2, range(self.calls, self.calls + 4)))
        self.runs += 8
        self.calls += 4
        ended = AgentRun.objects.filter(finished_at__isnull=False)

        def all_ended() -> bool:
            # There is no beat here, and a turn may find every due run held for a moment.
            sweeps.run_once()
            return ended.count() == self.runs + self.calls

        wait_until(all_ended, what="all ended", seconds=PATIENCE)
        return True

    def _start(self, url: str) -> None:
        started = self._post(f"{url}/api/v1/runs/", {"agent": AGENT})
        assert started.status_code == 201, started.text

    def _call(self, url: str, key: int) -> None:
        asked = {"tool": "add", "arguments": {"one": key, "other": 1}, "wait_seconds": 20}
        called = self._post(f"{url}/api/v1/operations/", asked, **{"Idempotency-Key": str(key)})
        assert called.status_code == 200, called.text

    def _post(self, url: str, asked: object, **headers: str) -> httpx2.Response:
        return httpx2.post(url, json=asked, headers=self._headers | headers, timeout=PATIENCE)


def _free_ports() -> tuple[int, int]:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        return one.getsockname()[1], two.getsockname()[1]


def _web(port: int) -> tuple[str, ...]:
    return processes.web(host="127.0.0.1", port=port)


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
        return bool(answer.status == 200)
    return False
