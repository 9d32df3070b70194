"""The kit passes sound tools, and catches each wrong declaration by name."""

import itertools
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.shop.provider_process import provider_process
from runs.agents import all_agents
from tests.conformance.kit_page import (
    EXAMPLES,
    faults_unlike_the_page,
    table_of,
    table_of_faults,
    written_table,
)
from tests.conformance.kit_planted import PLANTED, Plant, note_by_another_connection
from tests.conformance.kit_tools import Shop, count_notes, new_refund, notes_table
from tests.conformance.side_by_side import Check, Reports, reports_of
from tools import Call, EffectType, Reconciled, Timeout
from tools.registry import all_tools
from tools.testing import Intended, Report, Unsound, assert_sound, check
from tools.testing.errors import EffectsBefore, OpenTransaction, UnknownFault

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(600),
    pytest.mark.django_db(transaction=True),
]

MORE_TRIES = 3
CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with provider_process(tmp_path / "honours-keys.sqlite3") as running:
        yield Shop(running)


@pytest.fixture
def keyless_shop(tmp_path: Path) -> Iterator[Shop]:
    with provider_process(tmp_path / "ignores-keys.sqlite3", ignore_keys=True) as running:
        yield Shop(running)


def check_example(folder: Path, *, effect_type: str) -> Report:
    """A report whose rows that differ from the page were tried again.

    On a machine that is too busy a look-up may be later than a late request, or a lease too
    short to send: other ways to a kept promise. What is broken is not tried again.
    """
    with ExitStack() as under:
        example = EXAMPLES[effect_type](under, folder)
        report = check(**example)
        for _ in range(MORE_TRIES):
            faults = faults_unlike_the_page(report, effect_type)
            if not faults or not report.ok:
                break
            again = {row.fault: row for row in check(**example, faults=faults).rows}
            rows = [again.get(row.fault, row) for row in report.rows]
            report = replace(report, rows=tuple(rows))
        return report


def check_planted(folder: Path, *, plant: Plant) -> Report:
    with provider_process(folder / "honours-keys.sqlite3") as running:
        shop = Shop(running)
        return check(
            plant(shop),
            arguments=new_refund,
            count_effects=shop.count,
            faults=["no_fault"],
            probes=True,
        )


PLANTS = {plant.__name__: plant for plant in PLANTED}
CHECKS: dict[str, Check] = {
    **{name: partial(check_example, effect_type=name) for name in EXAMPLES},
    **{name: partial(check_planted, plant=plant) for name, plant in PLANTS.items()},
}
reports = reports_of(CHECKS)


@pytest.mark.django_db(transaction=False)
@pytest.mark.parametrize("checked", EXAMPLES)
def test_a_sound_tool_keeps_its_promise_under_every_fault_as_the_page_says(
    checked: str, reports: Reports
) -> None:
    assert_sound(reports[checked])
    assert written_table(checked) == table_of(reports[checked])


def test_the_page_says_what_each_fault_does() -> None:
    assert written_table("The faults") == table_of_faults()


@pytest.mark.django_db(transaction=False)
@pytest.mark.parametrize("checked", PLANTS)
def test_a_wrong_declaration_is_found_by_name(checked: str, reports: Reports) -> None:
    report = reports[checked]
    found = {finding.name: finding for finding in report.findings if finding.level == "error"}
    for name, field in PLANTED[PLANTS[checked]].items():
        assert name in found, str(report)
        assert found[name].field == field
        assert found[name].fix
        with pytest.raises(Unsound, match=name):
            assert_sound(report)


def test_a_sound_tool_is_accused_of_nothing(shop: Shop) -> None:
    report = check(
        shop.refund(EffectType.IDEMPOTENT_WRITE),
        arguments=new_refund,
        count_effects=shop.count,
        faults=["no_fault"],
        probes=True,
    )
    assert report.findings == ()


def test_a_look_up_that_knows_a_way_around_the_network_is_accused_of_nothing(shop: Shop) -> None:
    def find(call: Call) -> Reconciled[Any]:
        try:
            return shop.find(call)
        except httpx2.HTTPError:
            with closing(sqlite3.connect(shop.process.ledger)) as books:
                ask = "SELECT refund_id FROM effects WHERE operation_id = ?"
                (found,) = books.execute(ask, [call.operation_id]).fetchone() or (None,)
        if found is None:
            return Reconciled.not_found()
        return Reconciled.committed({"refund_id": found}, external_ref=found)

    report = check(
        shop.refund(EffectType.IDEMPOTENT_WRITE, reconcile_handler=find),
        arguments=new_refund,
        count_effects=shop.count,
        faults=["no_fault"],
        probes=True,
    )
    assert report.findings == ()
    assert report.probed


def test_an_idempotent_write_over_a_provider_that_ignores_keys_is_found_and_made_to_fail(
    keyless_shop: Shop,
) -> None:
    report = check(
        keyless_shop.refund(EffectType.IDEMPOTENT_WRITE),
        arguments=new_refund,
        count_effects=keyless_shop.count,
        faults=["request_late", "request_doubled", "look_up_lags", "answer_lost"],
        probes=True,
    )
    assert [found.name for found in report.findings] == ["key_is_ignored"]
    assert {row.fault: row.effects for row in report.broken} == {
        "request_late": 2,
        "request_doubled": 2,
        "look_up_lags": 2,
    }
    assert report.row("answer_lost").verdict == "kept"


def test_a_transactional_tool_with_a_connection_of_its_own_is_found_and_made_to_fail() -> None:
    with notes_table():
        report = check(
            note_by_another_connection(),
            arguments={"words": "kept"},
            count_effects=count_notes,
            faults=["killed_after_effect", "answer_lost"],
            probes=True,
        )
    assert [found.name for found in report.findings] == ["survives_rollback"]
    assert {row.fault: row.effects for row in report.broken} == {
        "killed_after_effect": 2,
        "answer_lost": 2,
    }


def test_a_request_that_lands_later_than_was_declared_says_nothing_about_the_tool(
    shop: Shop,
) -> None:
    """As on a machine that is too busy: here the late request takes its time, and only that one."""

    def send(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        if call.seconds_left() > 30.0:
            time.sleep(3.0)
        return shop.send(call, order_id, amount)

    refund = shop.refund(
        EffectType.NON_IDEMPOTENT_WRITE,
        send=send,
        settle_window=timedelta(seconds=2),
        timeout_policy=Timeout(seconds=2.0),
    )
    report = check(refund, arguments=new_refund, count_effects=shop.count, faults=["request_late"])
    assert report.row("request_late").verdict == "not run"
    assert "too busy" in report.row("request_late").why
    assert report.ok


def test_a_counter_that_sees_nothing_is_told_from_a_tool_that_does_nothing(shop: Shop) -> None:
    report = check(
        shop.refund(EffectType.IDEMPOTENT_WRITE),
        arguments=new_refund,
        count_effects=lambda intended: 0,
        faults=["no_fault"],
    )
    assert [found.name for found in report.findings] == ["no_effect_seen"]
    assert report.row("no_fault").verdict == "BROKEN"
    assert not report.ok


def test_a_counter_that_cannot_tell_operations_apart_is_refused(shop: Shop) -> None:
    shop.process.place_refund("another")
    with pytest.raises(EffectsBefore, match="not called yet"):
        check(
            shop.refund(EffectType.IDEMPOTENT_WRITE),
            arguments=new_refund,
            count_effects=lambda intended: len(shop.process.effects()),
        )


def test_an_unknown_fault_is_refused_with_the_nearest_names(shop: Shop) -> None:
    with pytest.raises(UnknownFault, match="answer_lost"):
        check(
            shop.refund(EffectType.IDEMPOTENT_WRITE),
            arguments=new_refund,
            count_effects=shop.count,
            faults=["answers_lost"],
        )


@pytest.mark.django_db(transaction=False)
def test_a_check_inside_a_transaction_is_refused(shop: Shop) -> None:
    with pytest.raises(OpenTransaction, match="transaction=True"):
        check(
            shop.refund(EffectType.IDEMPOTENT_WRITE),
            arguments=new_refund,
            count_effects=shop.count,
        )


def test_a_check_leaves_no_agent_and_the_tools_as_they_were(shop: Shop) -> None:
    refund = shop.refund(EffectType.IDEMPOTENT_WRITE)
    agents, tools = all_agents(), all_tools()
    report = check(
        refund, arguments=new_refund, count_effects=shop.count, faults=["killed_in_call"]
    )
    assert (all_agents(), all_tools()) == (agents, tools)
    again = json.loads(json.dumps(report.to_json()))
    assert again["ok"] is True
    assert again["probed"] is False
    assert [row["fault"] for row in again["rows"]] == ["no_fault", "killed_in_call"]


@pytest.mark.skipif(not CHILDREN.exists(), reason="this system does not list children")
def test_a_check_that_breaks_off_ends_its_processes_and_says_why(shop: Shop) -> None:
    counted = itertools.count()

    def count(intended: Intended) -> int:
        if next(counted) > 8:
            raise RuntimeError("the books are closed")
        return shop.count(intended)

    before = CHILDREN.read_text()
    with pytest.raises(RuntimeError, match="the books are closed"):
        check(shop.refund(EffectType.IDEMPOTENT_WRITE), arguments=new_refund, count_effects=count)
    assert CHILDREN.read_text() == before
