import pytest
from tests.protocol.lives import Life
from tests.protocol.programs import Program

pytestmark = [pytest.mark.django_db(transaction=True)]


def test_one():
    life = Life()
    try:
        life.start(
            Program(
                steps=(
                    (
                        Program(
                            steps=("signed 1 + signed 1",),
                            end="fail",
                            compensates=False,
                            most_steps=None,
                            repeats_allowed=5,
                        ),
                    ),
                ),
                end="finish",
                compensates=True,
                most_steps=2,
                repeats_allowed=2,
            )
        )
        life.nothing_is_violated()
        for i in range(12):
            print(
                i,
                [
                    (
                        r.depth,
                        r.state,
                        r.step_number,
                        r.paused_at is not None,
                        r.pause_reason,
                        r.wake_at,
                        r.spent_steps,
                        r.budget,
                    )
                    for r in life._runs()
                ],
            )
            was = life._standing()
            life.work()
            if was == life._standing():
                print("help")
                life._help()
        from runs.models import Approval, ToolOperation

        print(ToolOperation.objects.values("tool", "status", "error", "repeats_id"))
        print(Approval.objects.values("status", "approve_by"))
    finally:
        life.teardown()
