"""Every kind of thing that a timeline tells of has words of its own."""

import pytest

from runs.models import Incident, LlmRequest, Question, ToolObservation
from runs.state import OperationEvent, RunEvent
from runs.timeline_words import title_of
from tests.unit.test_timeline_story import entry

EDGES = [f"run.{event.lower()}" for event in RunEvent]
EDGES += [f"operation.{event.lower()}" for event in OperationEvent]
FOUND = [f"llm.{outcome}" for outcome in LlmRequest.Outcome.values]
FOUND += [f"question.{status}" for status in Question.Status.values if status != "open"]


@pytest.mark.parametrize("kind", [*EDGES, *FOUND])
def test_every_edge_and_every_end_has_words(kind: str) -> None:
    assert title_of(entry(kind)) != kind.replace("_", " ")


@pytest.mark.parametrize("source", ToolObservation.Source.values)
def test_every_source_has_words(source: str) -> None:
    assert not title_of(entry(f"observation.{source}")).startswith(source)


@pytest.mark.parametrize("kind", Incident.Kind.values)
def test_every_incident_is_called_by_its_label(kind: str) -> None:
    assert title_of(entry(f"incident.{kind.lower()}")).endswith(Incident.Kind(kind).label)
