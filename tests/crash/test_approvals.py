"""A worker is killed at every commit around a signature: nothing leaves unsigned, or twice.

One worker asks, people sign, another one sends; either is killed at the first, second, third
… event of every kind, each time in a run of its own, until a run goes by untouched.
"""

import signal
from collections.abc import Mapping
from typing import Final, Literal

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import AgentRun, Approval
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import fault_at, first, strike_everywhere
from tests.crash.forked import fork_worker
from tests.crash.laws import Books, assert_honest
from tests.database.approving import person, say

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(150),
    # With people, who are none of the kernel's rows.
    pytest.mark.django_db(transaction=True),
]

Part = Literal["asking", "sending"]
# What makes a difference to what a killed worker leaves: what was committed, and what the provider
# did.
MOMENTS: Final[dict[Part, dict[Name, range]]] = {
    "asking": {Name.RUN_CLAIMED: first(1), Name.COMMIT_DONE: first(2)},
    "sending": {
        Name.RUN_CLAIMED: first(1),
        Name.COMMIT_DONE: first(3),
        Name.CALL_STARTING: first(1),
        Name.CALL_DONE: first(1),
    },
}
MOST_SIGNATURES: Final = 4


# Whether its provider honours keys makes a difference once something was sent.
@pytest.mark.parametrize(
    ("agent", "part"),
    [("crash_signed", "asking"), ("crash_signed", "sending"), ("crash_signed_unkeyed", "sending")],
)
def test_killed_at_any_commit_around_a_signature_nothing_leaves_unsigned_or_twice(
    agent: str,
    part: Part,
    forks: None,
    providers: Providers,
    start_agent: StartRun,
    new_log: NewLog,
) -> None:
    def is_killed(moments: Mapping[Name, int]) -> bool:
        with providers.borrowed(honours_keys=agent == "crash_signed") as provider:
            run = start_agent(agent)
            return crash_one_run(run, provider, part=part, at=fault_at(moments), log=new_log)

    strike_everywhere(is_killed, known=MOMENTS[part])


def crash_one_run(
    run: AgentRun, provider: ProviderProcess, *, part: Part, at: str, log: NewLog
) -> bool:
    """Whether a worker of the run was killed; whatever happened, its books are in order."""
    books = Books(provider)

    def work(fault: str = "") -> int:
        assignment = Assignment(
            run_id=run.id, provider_url=provider.url, log=str(log()), fault=fault
        )
        with fork_worker(assignment) as worker:
            return worker.wait()

    killed = part == "asking" and work(at) == -signal.SIGKILL
    work()
    assert books.sent == []
    assert [one.status for one in requests_of(run)] == ["pending"]
    sign(run)
    killed = killed or (part == "sending" and work(at) == -signal.SIGKILL)
    for _ in range(MOST_SIGNATURES):
        work()
        provider.wait_until_landed()
        assert_no_send_without_its_signature(run, books)
        run.refresh_from_db()
        if run.state != "WAITING_FOR_APPROVAL":
            break
        sign(run)
    assert run.state == "COMPLETED", f"{run.state}: {run.error}"
    assert len(books.effects) == 1
    assert_honest(run.id, books)
    return killed


def requests_of(run: AgentRun) -> list[Approval]:
    return list(Approval.objects.filter(run=run).order_by("requested_at"))


def sign(run: AgentRun) -> None:
    newest = requests_of(run)[-1]
    for _ in range(newest.quorum):
        say(newest, person())


def assert_no_send_without_its_signature(run: AgentRun, books: Books) -> None:
    spent = [one for one in requests_of(run) if one.spent_at is not None]
    assert all(one.status == "approved" for one in spent)
    if run.agent == "crash_signed_unkeyed":
        assert len(books.sent) <= len(spent)
    else:
        # Under one key the provider joins what comes twice.
        assert len(spent) <= 1
        assert len({one.key for one in books.sent}) == len(spent) or not books.sent
