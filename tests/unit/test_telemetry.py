"""Ids of spans, what is recorded of many runs, and variables that would keep spans away."""

from uuid import UUID

import pytest
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from uuid_utils.compat import uuid7

from agentops.telemetry import checks, ids
from agentops.telemetry.generating import EvenSampler, NamedIds, named

RUN = UUID("01a22bd9-5349-7692-968b-79f57d62b0dd")
HERE = "http://127.0.0.1:4318"


def test_a_span_has_one_id_whoever_names_it_and_no_two_have_the_same() -> None:
    every = [
        ids.of_slice(RUN, 1),
        ids.of_slice(RUN, 2),
        ids.of_decision(RUN, 1, 1, 1),
        ids.of_decision(RUN, 1, 1, 2),
        ids.of_request(RUN, 1, 1),
        ids.of_send("op_1", 1),
        ids.of_send("op_11", 1),
        ids.of_send("op_1", 11),
        ids.of_look_up("op_1", 1, 1),
        ids.of_look_up("op_1", 1, 2),
        ids.of_look_up("op_1", 2, 1),
    ]
    assert len(set(every)) == len(every)
    assert all(0 < one < 2**64 for one in every)
    # As another process, of another release, names it: a link must meet its span.
    assert every[0] == ids.of_slice(UUID(str(RUN)), 1) == 0x8DA86571ACA81289


def test_only_what_is_begun_inside_has_the_given_ids() -> None:
    generator = NamedIds()
    with named(trace_id=7, span_id=8):
        assert (generator.generate_trace_id(), generator.generate_span_id()) == (7, 8)
    assert generator.generate_span_id() != generator.generate_span_id()


@pytest.mark.parametrize("ratio", [0.1, 0.9])
def test_a_ratio_of_traces_is_that_ratio_of_runs(ratio: float) -> None:
    sampler = EvenSampler(ParentBased(TraceIdRatioBased(ratio)))
    runs = [uuid7().int for _ in range(2_000)]
    chosen = [one for one in runs if _is_chosen(sampler, one)]
    assert abs(len(chosen) / len(runs) - ratio) < 0.05
    assert all(_is_chosen(sampler, one) for one in chosen)


def _is_chosen(sampler: EvenSampler, trace_id: int) -> bool:
    return sampler.should_sample(None, trace_id, "invoke_agent a").decision.is_sampled()


@pytest.mark.parametrize(
    ("given", "is_asked_for"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{HERE}/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_spans_are_recorded_where_a_collector_is_named(
    given: dict[str, str], is_asked_for: bool
) -> None:
    assert checks.is_asked_for(given) is is_asked_for
    assert checks.judge(given) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "no address"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://"}, "no address"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'",
        ),
    ],
)
def test_what_would_keep_spans_away_is_said_at_start(given: dict[str, str], words: str) -> None:
    (found,) = checks.judge(given)
    assert words in found.msg
    assert found.hint


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "NEEDED", ("no_such_library.sdk",))
    (found,) = checks.judge({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE})
    assert found.hint is not None
    assert "agentops[otel]" in found.hint
