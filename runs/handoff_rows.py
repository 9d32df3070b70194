"""The newest handoff of a run, from its rows.

Guarantees: one that speaks about steps that a retry took back since does not count; a fork begins
with what its origin knew at that step, and never with what the origin learned later.

Does not write any; `handoffs.py` does.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef
from pydantic import ValidationError

from runs.artifact import Artifact
from runs.errors import UndecodableHandoff
from runs.history import Covered, Origin, follow_origins
from runs.models import Handoff, Step


@dataclass(frozen=True)
class Handed:
    """A stored handoff: of which run, up to which step, and its artifact."""

    run_id: UUID
    number: int
    through_step: int
    written_by: str
    artifact: Artifact

    @property
    def covered(self) -> Covered:
        return Covered(self.run_id, self.artifact.covers_step)

    def to_context(self) -> dict[str, Any]:
        """What a decider is given of it."""
        unsaid = {"objective", "covers_step", "handed_over"}
        body = self.artifact.model_dump(mode="json", exclude=unsaid)
        return {"number": self.number, "through_step": self.through_step, **body}


def find_newest(*, run_id: UUID, origin: Origin | None, has_voided: bool = False) -> Handed | None:
    """The run's own newest handoff, or else the one that it inherits. One query for a run that
    is no fork. Raises UndecodableHandoff."""
    own = Handoff.objects.filter(run_id=run_id)
    if has_voided:
        own = own.exclude(_speaks_of_voided(by=None))
    row = own.order_by("-number").first()
    inherited = follow_origins(origin)
    while row is None and (above := next(inherited, None)) is not None:
        row = (
            Handoff.objects.filter(
                run_id=above.run_id,
                through_step__lte=above.step,
                created_at__lte=above.forked_at,
            )
            .exclude(_speaks_of_voided(by=above.forked_at))
            .order_by("-number")
            .first()
        )
    return decode_handoff(row) if row is not None else None


def count_handoffs(run_id: UUID) -> int:
    """How many the run has, those that do not count any more included: they are numbered from 1."""
    newest = Handoff.objects.filter(run_id=run_id).order_by("-number")
    return newest.values_list("number", flat=True).first() or 0


def _speaks_of_voided(*, by: datetime | None) -> Exists:
    """Whether a step that it speaks about was taken back since (and by a certain time)."""
    voided = Step.objects.filter(
        run_id=OuterRef("run_id"),
        number__lte=OuterRef("through_step"),
        voided_at__gt=OuterRef("created_at"),
    )
    return Exists(voided if by is None else voided.filter(voided_at__lte=by))


def decode_handoff(row: Handoff) -> Handed:
    """A stored handoff. Raises UndecodableHandoff."""
    try:
        artifact = Artifact.model_validate(row.body)
    except ValidationError as error:
        raise UndecodableHandoff(
            where=f"run {row.run_id} handoff {row.number}", why=str(error.errors()[0]["msg"])
        ) from error
    return Handed(row.run_id, row.number, row.through_step, row.written_by, artifact)
