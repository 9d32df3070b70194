"""The API keeps what its published schema says, whatever is sent: a real web process, asked by
Schemathesis for every operation of the schema, with ids that exist and ids that do not.

Each start searches the same way; `OPENAPI_EXAMPLES=500` looks longer.
"""

import importlib
import os
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi import checks

from agentops import processes
from runs.engine import advance
from runs.models import Approval, Question
from tests.database.callers import caller
from tests.database.scheduling import schedule
from tests.processes import Program, environment, of_this_test, wait_until
from tools import registry

pytestmark = pytest.mark.django_db(transaction=True)

EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "10"))
# A request that a read of this long does not answer has hung.
SECONDS = 20
# What may stand in an address, as it stands there, and can be no id.
ODD = ["%00", quote("\N{RIGHT-TO-LEFT OVERRIDE}" * 300), "..%2f", "null"]
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@dataclass
class Web:
    """A web process with something of everything in its database."""

    address: str
    session: requests.Session
    # What exists, by the name of a parameter or of a field of a body.
    known: Mapping[str, list[str]]
    log: Program


@pytest.fixture
def web(transactional_db: None, tmp_path: Path) -> Iterator[Web]:
    # Tools and agents of this process too: it carries out what no web process does.
    with registry.isolated_registry():
        importlib.import_module("tests.conformance.apidesk.tools")
        importlib.import_module("tests.conformance.apidesk.agents")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        # How often one may ask is for other tests.
        more = {"PORT": str(port), "AGENTOPS_RATE_PER_MINUTE": "0"}
        env = environment(
            of_this_test(), apps="tests.conformance.apidesk", lease_seconds=30, more=more
        )
        arguments = processes.web(host="127.0.0.1", port=port)
        address = f"http://127.0.0.1:{port}"
        with Program("-m", "uvicorn", *arguments, env=env, log=tmp_path / "web.log") as program:
            wait_until(lambda: _answers(f"{address}/healthz"), what="the web answers", seconds=60)
            with requests.Session() as session:
                session.headers["Authorization"] = f"Token {caller().token}"
                known = _fill(f"{address}/api/v1", session)
                yield Web(address=address, session=session, known=known, log=program)


def test_every_operation_answers_as_the_schema_says(web: Web, subtests: pytest.Subtests) -> None:
    schema = schemathesis.openapi.from_url(f"{web.address}/api/v1/schema/?format=json")
    schema.config.generation.update(with_security_parameters=False)
    asked = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        with subtests.test(operation.label):
            _ask_often(web, operation)
        asked += 1
        if operation.method == "get" and "{" in operation.path:
            start = web.address + operation.path[: operation.path.index("{")]
            end = operation.path[operation.path.index("}") + 1 :]
            for odd in ODD:
                with subtests.test(operation.label, odd=odd[:9]):
                    assert web.session.get(start + odd + end, timeout=SECONDS).status_code == 404
    assert asked == _count(schema)
    assert web.log.lives
    assert "Traceback" not in web.log.said


def _ask_often(web: Web, operation: APIOperation[Any, Any, Any, Any]) -> None:
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    cases = [operation.as_strategy(generation_mode=mode) for mode in modes]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(cases), data=st.data())
    def ask(case: Case[Any], data: st.DataObject) -> None:
        has_aimed = _aim(case, data, web.known)
        answer = case.call(base_url=web.address, session=web.session, timeout=SECONDS)
        # What was wrong may be what was replaced.
        must_refuse = [] if has_aimed else [checks.negative_data_rejection]
        case.validate_response(answer, checks=[*CHECKS, *must_refuse])

    ask()


def _aim(case: Case[Any], data: st.DataObject, known: Mapping[str, list[str]]) -> bool:
    """Put what exists in the place of some of what was made up, and have nothing waited for.

    Returns whether anything was replaced.
    """
    has_aimed = False
    for part in (case.path_parameters, case.query, case.body):
        if not isinstance(part, dict):
            continue
        for name in sorted(set(part) & set(known)):
            if data.draw(st.sampled_from([True, True, False]), label=f"a known {name}"):
                odd = ODD if part is case.path_parameters else []
                part[name] = data.draw(st.sampled_from([*known[name], *odd]))
                has_aimed = True
        if _waits(part.get("wait_seconds")):
            part["wait_seconds"] = 0.01
    return has_aimed


def _waits(seconds: Any) -> bool:
    try:
        return 0 < float(seconds) <= 60
    except (TypeError, ValueError, OverflowError):
        return False


def _fill(api: str, session: requests.Session) -> dict[str, list[str]]:
    """A call that was made, one that is held, one that is unknown; a question; a schedule."""

    def post(address: str, body: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        headers = {"Idempotency-Key": key} if key else {}
        answer = session.post(f"{api}/{address}", json=body, headers=headers, timeout=SECONDS)
        assert answer.ok, answer.text
        said: dict[str, Any] = answer.json()
        return said

    calls = [
        post("operations/", {"tool": tool, "arguments": arguments, "thread": thread}, key=tool)
        for tool, arguments, thread in (
            ("look_up", {"name": "a"}, None),
            ("wire", {"order": "17", "amount": 1}, "errands"),
            ("post", {"letter": "dear"}, None),
        )
    ]
    assert [one["status"] for one in calls] == ["COMMITTED", "AWAITING_APPROVAL", "UNKNOWN"]
    schedule("daily", agent="looker")
    started = [post("runs/", {"agent": agent}) for agent in ("asker", "looker")]
    for run in started:
        advance(run_id=UUID(run["id"]), owner="worker 1")
    runs = [*(run["id"] for run in started), *(one["run"] for one in calls)]
    return {
        "run_id": runs,
        "run": runs,
        "operation_id": [one["operation_id"] for one in calls],
        "approval_id": [str(Approval.objects.get().pk)],
        "fingerprint": [Approval.objects.get().fingerprint],
        "question_id": [str(Question.objects.get().pk)],
        "name": ["daily"],
        "tool": ["look_up", "wire", "post"],
        "agent": ["external", "looker", "asker"],
        "thread": ["errands"],
    }


def _count(schema: BaseSchema) -> int:
    return sum(len(methods) for methods in schema.raw_schema["paths"].values())


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
