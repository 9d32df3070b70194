"""How a run ends: failed, cancelled or completed, always by a commit that says so.

Guarantees: the final state, the end of the step and of the attempt, and the notice of it are
one commit; nothing is due afterwards.
"""

from runs.models import TEXT_LIMIT, Notice
from runs.outcomes import cancel_operation, commit_if_proven
from runs.state import RunEvent
from runs.work import Work
from tools.redaction import bound_text


def fail(work: Work, reason: str) -> None:
    """End the run as failed."""
    work.change.run["error"] = bound_text(reason, TEXT_LIMIT)
    work.move(RunEvent.FAIL, reason)
    finish(work)


def cancel(work: Work) -> None:
    """End the run as cancelled; what is open was never sent, or proves to have happened."""
    for operation in work.operations:
        if operation.settled_at is None and not commit_if_proven(work, operation):
            cancel_operation(work, operation)
    work.move(RunEvent.CANCEL, f"asked for by {work.cancel_requested_by}")
    finish(work)


def finish(work: Work) -> None:
    """Commit a final state: the step ends with it, and nobody is due any more."""
    work.change.run["finished_at"] = work.now
    work.notify(Notice.Kind.RUN_FINISHED, work.run_id, status=work.state)
    if work.step_id is not None and work.change.open_step is None:
        work.change.close_step = True
    work.release(wake_in=None, attempt_outcome="done")
