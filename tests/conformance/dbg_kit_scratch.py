import sys, time
from collections.abc import Iterator
from pathlib import Path
import pytest
from examples.shop.provider_process import provider_process
from tests.conformance.kit_tools import Shop, arguments
from tools import EffectType
from tools.testing import check
from tools.testing import cases
import os
pytestmark = [pytest.mark.django_db(transaction=True)]
orig = cases._Case.judge
def judge(self):
    from runs.models import Transition, ToolObservation
    print("=====", self.fault.name, time.monotonic()-(self.ends-60))
    for t in Transition.objects.filter(run=self.run_id).order_by("id"):
        print("   ", t.at.strftime("%S.%f")[:6], t.operation_id and "op" or "run", t.event, t.from_state, t.to_state, t.fence_token, t.reason[:100])
    for o in ToolObservation.objects.filter(run=self.run_id).order_by("id"):
        print("   obs", o.observed_at.strftime("%S.%f")[:6], o.source, o.verdict, o.stage, o.detail[:80], o.attempt, o.fence_token)
    for c in self.workers: print("   child", c.pid, c._status, c.said[-1500:])
    return orig(self)
cases._Case.judge = judge
def test_x(tmp_path):
    with provider_process(tmp_path / "ledger.sqlite3", ignore_keys=bool(os.environ.get("IGNORE"))) as running:
        shop = Shop(running)
        t = time.monotonic()
        report = check(shop.refund(EffectType[os.environ.get("ET","IDEMPOTENT_WRITE")]), arguments=arguments, count_effects=shop.count, **({"faults": os.environ["F"].split(",")} if os.environ.get("F") else {}))
        print(report); print(time.monotonic()-t)
