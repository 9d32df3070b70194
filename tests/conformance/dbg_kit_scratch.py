import asyncio, httpx2, requests, urllib3, time, pytest, ssl, json
from tests.conformance.kit_tools import *
from examples.shop.provider_process import provider_process
from tools.testing import check
from tools import *
pytestmark = [pytest.mark.django_db(transaction=True)]
def mk(shop, kind, bad):
    @tool(name="refund", effect_type=EffectType.IDEMPOTENT_WRITE, provider=shop.provider(), reconcile_handler=shop.find)
    async def arefund(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        "x"
        try:
            async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(retries=0)) as c:
                a = await c.post(f"{shop.process.url}/refunds", json={"order": order_id, "amount": amount, "operation_id": call.operation_id}, headers={"Idempotency-Key": call.idempotency_key}, timeout=call.remaining)
                m = a.raise_for_status().json(); external_ref(m["refund_id"]); return m
        except httpx2.HTTPError as e:
            if bad: raise Rejected("no")
            raise
    if kind == "async": return arefund
def mk2(shop, bad):
    from urllib3.util.retry import Retry as R
    @tool(name="refund", effect_type=EffectType.IDEMPOTENT_WRITE, provider=shop.provider(), reconcile_handler=shop.find)
    def rrefund(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        "x"
        s = requests.Session()
        if bad: s.mount("http://", requests.adapters.HTTPAdapter(max_retries=R(3, allowed_methods=None)))
        a = s.post(f"{shop.process.url}/refunds", json={"order": order_id, "amount": amount, "operation_id": call.operation_id}, headers={"Idempotency-Key": call.idempotency_key}, timeout=call.remaining)
        a.raise_for_status(); m = a.json(); external_ref(m["refund_id"]); return m
    return rrefund
@pytest.mark.parametrize("kind", ["async", "async-bad", "req", "req-bad"])
def test_y(tmp_path, kind):
    with provider_process(tmp_path / "ledger.sqlite3") as running:
        shop = Shop(running)
        bad = "bad" in kind
        t = mk(shop, "async", bad) if "async" in kind else mk2(shop, bad)
        r = check(t, arguments=new_refund, count_effects=shop.count, faults=["no_fault"], probes=True)
        print(kind, r)
