from tests.protocol.test_llm_programs import *
from tests.database.kit import listening
def test_count():
    life = AskingLife()
    FULL(life)
    with listening() as heard:
        WORK(life)
    n=0
    for e in heard:
        if e.name==Name.COMMIT_STARTING: n+=1
        print(n, e.name)
    print(life.llm.asked, [(r.purpose, r.step.number) for r in LlmRequest.objects.order_by("id")], Handoff.objects.count())
    life.teardown()
