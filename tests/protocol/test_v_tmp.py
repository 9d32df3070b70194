import pytest
from tests.protocol.lives import Life
from tests.protocol.programs import Program
from tests.protocol.invariants import violations
pytestmark = [pytest.mark.django_db(transaction=True)]
def test_one():
    life = Life()
    try:
        life.start(Program(steps=((Program(steps=('unkeyed 1 + unkeyed 2 + keyed 2 + final 1',), end='finish', compensates=True, most_steps=None, repeats_allowed=2),), (Program(steps=('final 1', 'wait for go'), end='finish', compensates=False, most_steps=None, repeats_allowed=2), Program(steps=('again 1', 'keyed 2 + keyed 1'), end='compensate', compensates=False, most_steps=2, repeats_allowed=2))), end='fail', compensates=False, most_steps=None, repeats_allowed=5))
        life.nothing_is_violated()
        for i in range(25):
            print(i, [(r.depth, str(r.id)[-4:], r.state, r.step_number, r.spent_steps, r.pause_reason, r.wake_at is None, r.error[:60]) for r in life._runs()])
            now = life._picture()
            print('  ', violations(now, life.before)); life.before = now
            was = life._standing()
            life.work()
            if was == life._standing() or i % 5 == 4:
                life._help()
    finally:
        life.teardown()
