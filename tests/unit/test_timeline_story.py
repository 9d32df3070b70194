"""The story of a timeline and its lanes: grouped, in order, with the gaps marked."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from runs.shapes import TimelineEntry
from runs.timeline_lanes import Hold, Lane, draw_lanes
from runs.timeline_story import Chapter, tell, turn
from runs.timeline_words import Phase, phase_of, title_of

START = datetime(2026, 3, 1, 3, tzinfo=UTC)
RUN = UUID(int=1)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def entry(kind: str, at: float = 0, **fields: Any) -> TimelineEntry:
    empty = dict.fromkeys(TimelineEntry.model_fields)
    known: dict[str, Any] = {"seq": 1, "actor": "w1", "step_number": 1, "fence_token": 1}
    texts = {"run_id": RUN, "reason": "", "at": after(at), "kind": kind}
    return TimelineEntry(**(empty | known | texts | fields))


def hold(token: int, began: float, ended: float | None, outcome: str = "", **more: Any) -> Hold:
    known: dict[str, Any] = {"worker": f"w{token}", "step": 1}
    end = None if ended is None else after(ended)
    return Hold(token=token, began=after(began), ended=end, outcome=outcome, **(known | more))


def shape(chapters: list[Chapter]) -> list[Any]:
    """Per chapter: its step, whether it comes again, and its scenes as (operation, kinds)."""
    return [
        (
            chapter.step,
            chapter.again,
            [
                (scene.operation_id, scene.again, [line.entry.kind for line in scene.lines])
                for scene in chapter.scenes
            ],
        )
        for chapter in chapters
    ]


# -- The story -------------------------------------------------------------------------


def test_entries_stand_under_their_step_and_their_operation_in_their_own_order() -> None:
    told = tell(
        [
            entry("run.create", step_number=0),
            entry("run.open_step"),
            entry("operation.intend", operation_id="a"),
            entry("operation.intend", operation_id="b"),
            entry("operation.commit", operation_id="a"),
            entry("run.open_step", step_number=2),
        ],
        start=START,
    )
    assert shape(told) == [
        (0, False, [(None, False, ["run.create"])]),
        (
            1,
            False,
            [
                (None, False, ["run.open_step"]),
                ("a", False, ["operation.intend"]),
                ("b", False, ["operation.intend"]),
                ("a", True, ["operation.commit"]),
            ],
        ),
        (2, False, [(None, False, ["run.open_step"])]),
    ]


def test_what_comes_late_to_a_step_has_a_chapter_that_says_so() -> None:
    entries = [
        entry("run.close_step"),
        entry("run.open_step", step_number=2),
        entry("incident.late_commit", operation_id="a", fence_token=0),
    ]
    told = tell(entries, start=START)
    assert [(one.step, one.again) for one in told] == [(1, False), (2, False), (1, True)]


def test_what_is_about_the_run_as_a_whole_stands_where_it_happened() -> None:
    entries = [entry("run.open_step", step_number=3), entry("signal.sent", step_number=0)]
    assert [one.step for one in tell(entries, start=START)] == [3]


def test_the_run_s_edge_that_only_repeats_its_operation_s_is_on_the_same_line() -> None:
    entries = [
        entry("operation.send", operation_id="a", to_state="RUNNING"),
        entry("run.send", to_state="TOOL_RUNNING"),
        entry("observation.worker", 2, operation_id="a"),
        entry("operation.commit", 2, operation_id="a"),
        # Of another commit: it stands for itself.
        entry("run.commit", 3),
    ]
    told = tell(entries, start=START)
    (chapter,) = told
    first = chapter.scenes[0].lines[0]
    assert first.run_edge == entries[1]
    assert shape(told)[0][2] == [
        ("a", False, ["operation.send", "observation.worker", "operation.commit"]),
        (None, False, ["run.commit"]),
    ]


def test_a_take_over_is_never_hidden_behind_the_operation_that_it_finds() -> None:
    entries = [entry("operation.lose_outcome", operation_id="a"), entry("run.take_over")]
    assert len(tell(entries, start=START)[0].scenes) == 2


def test_a_long_silence_is_marked_with_what_the_run_was_in() -> None:
    entries = [
        entry("run.send", 0, to_state="TOOL_RUNNING"),
        entry("observation.worker", 9.9),
        entry("operation.commit", 53),
    ]
    first, second, third = tell(entries, start=START)[0].scenes[0].lines
    assert (first.gap, second.gap) == (None, None)
    assert third.gap is not None
    assert (third.gap.length, third.gap.state) == (timedelta(seconds=43.1), "TOOL_RUNNING")
    assert not third.gap.is_parked
    assert third.after == timedelta(seconds=53)


def test_a_wait_for_a_person_is_no_silence_of_a_worker() -> None:
    entries = [entry("run.hold", 0, to_state="WAITING_FOR_APPROVAL"), entry("run.approve", 600)]
    _, waited = tell(entries, start=START)[0].scenes[0].lines
    assert waited.gap is not None
    assert waited.gap.is_parked


def test_a_lost_token_marks_the_take_over_once_and_from_the_last_sign_of_life() -> None:
    entries = [
        entry("run.send", 1, to_state="TOOL_RUNNING"),
        entry("observation.take_over", 44, actor="w2", operation_id="a"),
        entry("operation.lose_outcome", 44, actor="w2", fence_token=2, operation_id="a"),
    ]
    lanes = draw_lanes([hold(1, 0, 44, "lost"), hold(2, 44, None)], entries)
    lines = [
        line for scene in tell(entries, start=START, lanes=lanes)[0].scenes for line in scene.lines
    ]
    gaps = [line.gap for line in lines if line.gap is not None]
    assert [(gap.lost_token, gap.length.total_seconds()) for gap in gaps] == [(1, 43)]
    assert lines[1].gap is gaps[0]


def test_newest_first_is_the_same_story_turned_around() -> None:
    entries = [
        entry("run.open_step"),
        entry("operation.intend", 1, operation_id="a"),
        entry("operation.send", 2, operation_id="a"),
        entry("run.open_step", 3, step_number=2),
    ]
    told = tell(entries, start=START)
    assert shape(turn(told)) == [
        (2, False, [(None, False, ["run.open_step"])]),
        (
            1,
            False,
            [
                ("a", False, ["operation.send", "operation.intend"]),
                (None, False, ["run.open_step"]),
            ],
        ),
    ]
    assert turn(turn(told)) == told


# -- Lanes -----------------------------------------------------------------------------


def one_lane(holds: list[Hold], entries: list[TimelineEntry]) -> Lane:
    (lane,) = draw_lanes(holds, entries)
    return lane


def test_a_lane_spans_every_step_that_its_token_covers() -> None:
    lane = one_lane([hold(1, 5, 9, "parked", step=2), hold(1, 0, 5, "done")], [])
    assert (lane.steps, lane.began, lane.ended, lane.outcome) == ((1, 2), START, after(9), "parked")
    assert lane.silent is None


def test_the_last_sign_of_life_is_the_holder_s_own() -> None:
    entries = [
        entry("run.send", 3),
        # Whoever took over, a person, and the holder itself when it was none any more.
        entry("observation.take_over", 40, actor="w2"),
        entry("observation.person", 20, actor="ann"),
        entry("observation.stale_worker", 50),
        entry("llm.used", 45),
        # The same worker under its next token.
        entry("run.send", 39, fence_token=2),
    ]
    lane = one_lane([hold(1, 0, 40, "lost")], entries)
    assert lane.last_sign == after(3)
    assert lane.silent == timedelta(seconds=37)
    assert lane.late == 1


def test_a_holder_that_recorded_nothing_was_alive_when_it_began() -> None:
    lane = one_lane([hold(1, 2, 40, "lost")], [])
    assert lane.silent == timedelta(seconds=38)


# -- Words -----------------------------------------------------------------------------


def test_the_way_of_an_action_has_its_stations() -> None:
    def station(kind: str, **fields: Any) -> Phase:
        return phase_of(entry(kind, **fields))

    assert station("run.record_decision") == Phase.DECISION
    assert station("operation.intend") == Phase.POLICY
    assert station("operation.hold") == Phase.APPROVAL
    assert station("operation.send") == Phase.SEND
    assert station("operation.commit", from_state="RUNNING") == Phase.ANSWER
    assert station("operation.commit", from_state="UNKNOWN") == Phase.RECOVERY
    assert station("observation.look_up") == Phase.RECOVERY
    assert station("incident.duplicate") == Phase.INCIDENT


def test_an_answer_is_called_by_its_class() -> None:
    seen = entry("observation.look_up", evidence={"verdict": "not_found"})
    assert title_of(seen) == (
        "The provider was asked: not found – the provider does not know it (yet)"
    )


def test_a_kind_without_words_is_called_by_its_name() -> None:
    assert title_of(entry("run.some_thing")) == "run.some thing"
