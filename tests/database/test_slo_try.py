import time
import pytest
from datetime import timedelta
from django.db import connection
from runs.slo import rolling, report
from runs.slo.slices import floor, ceil
from tests.database.slo_sums import clock
from tests.database.kit import ON_DATABASE
pytestmark = ON_DATABASE

FILL = """
SET session_replication_role = replica; SET statement_timeout = 0;
CREATE TEMP TABLE n AS SELECT g, gen_random_uuid() AS id, 
  CASE WHEN g <= %(dense)s THEN now() - interval '10 minutes' + g * interval '300 s' / %(dense)s ELSE now() - interval '3 days' + (g - %(dense)s) * (interval '3 days' - interval '11 minutes') / %(many)s END AS at
 FROM generate_series(1, %(dense)s + %(many)s) g;
CREATE TEMP TABLE m AS SELECT * FROM n ORDER BY at;
INSERT INTO runs_agentrun (id, agent, agent_version, state, objective, input, labels, error, created_by, request_digest, version, step_number, failures, fence_token, lease_owner, cancel_requested_by, pause_reason, created_at, updated_at, finished_at, spent_tokens, spent_cost_usd)
 SELECT id, 'agent' || g %% 5, 'v' || g %% 3, 'COMPLETED', '', '{}', '{}', '', 'x', '', 5, 2, 0, 1, '', '', '', at - interval '20 s', at, at, 100, 0.02 FROM m;
INSERT INTO runs_step (run_id, number, opened_at, closed_at) SELECT id, s, at, at FROM m, generate_series(1,2) s;
INSERT INTO runs_tooloperation (id, run_id, step_id, step_number, ordinal, revision, run_version, status, tool, tool_version, arguments_version, effect_type, provider, account, arguments, arguments_digest, sensitive, intent, idempotency_key, policy_outcome, policy_rule, policy_version, fence_token, attempts, look_ups, external_ref, error, never_sent, created_at, settled_at)
 SELECT 'op_' || m.id, m.id, 1, 1, 0, 0, 2, 'COMMITTED', 'tool' || g %% 10, 'x', '', 'READ', '', '', '{}', '', '[]', '', 'k', 'allow', '', '', 1, 1, 0, '', '', '', at, at FROM m;
INSERT INTO runs_toolobservation (operation_id, run_id, source, verdict, stage, detail, external_ref, attempt, fence_token, observed_at)
 SELECT 'op_' || m.id, m.id, 'worker', 'committed', '', '', '', 1, 1, at FROM m;
INSERT INTO runs_transition (run_id, version, operation_id, event, from_state, to_state, reason, actor, fence_token, step_number, attempt, at)
 SELECT m.id, e.v, CASE WHEN e.op THEN 'op_' || m.id END, e.event, e.f, e.t, '', 'w', 1, 1, 1, at
 FROM m, (VALUES (1, false, 'CREATE', '', 'READY'), (2, false, 'OPEN_STEP', 'READY','DECIDING'), (2,false,'RECORD_DECISION','DECIDING','DECISION_RECORDED'), (2,true,'INTEND','','PREPARED'),(2,true,'SEND','PREPARED','RUNNING'),(2,false,'SEND','TOOL_PREPARED','TOOL_RUNNING'),(3,true,'COMMIT','RUNNING','COMMITTED'),(3,false,'COMMIT','TOOL_RUNNING','TOOL_COMMITTED'),(3,false,'CLOSE_STEP','TOOL_COMMITTED','READY'),(3,false,'OPEN_STEP','READY','DECIDING'),(4,false,'RECORD_DECISION','DECIDING','DECISION_RECORDED'),(5,false,'COMPLETE','DECISION_RECORDED','COMPLETED')) AS e (v, op, event, f, t) ORDER BY m.at, e.v;
INSERT INTO runs_llmrequest (step_id, run_id, fence_token, purpose, llm, llm_version, prompt_version, outcome, problem, detail, said, finish_reason, response_id, input_tokens, output_tokens, cost_usd, latency_ms, shown, at)
 SELECT 1, m.id, 1, 'decide', 'x','x','x','used','','','','','',10,10,0.01,1500,'{}',at FROM m, generate_series(1,2);
INSERT INTO runs_notice (event_id, kind, run_id, operation_id, status, at, handed_on_at) SELECT 'f' || id, 'run.finished', id, '', 'COMPLETED', at, at FROM m;
SET session_replication_role = origin;
"""
@pytest.mark.timeout(0)
def test_perf(capsys):
    t=time.time()
    with connection.cursor() as c:
        c.execute(FILL, {"dense": 12000, "many": 28000})
        c.execute("SELECT brin_summarize_new_values('transition_by_time'), brin_summarize_new_values('llm_request_by_time')")
    connection.close()
    with connection.cursor() as c:
        c.execute("SET statement_timeout=0"); [c.execute("ANALYZE runs_"+x) for x in "agentrun transition tooloperation toolobservation llmrequest notice controlrequest approval question step stepattempt incident".split()]; c.execute("SET statement_timeout='10s'")
    print("filled", time.time()-t)
    now=clock()
    for name, a, b in (("dense", now - timedelta(minutes=10), now), ("an hour", now-timedelta(hours=30), now-timedelta(hours=29)), ("a day", now-timedelta(hours=60), now-timedelta(hours=36))):
        a, b = floor(a), ceil(b)
        t=time.time(); r=rolling.roll_up(since=a, until=b); print(name, r, "rows", time.time()-t)
        if name in ("dense", "an hour"):
            for s in rolling._STATEMENTS:
                with connection.cursor() as c:
                    c.execute("BEGIN; SET LOCAL jit=off"); rolling; c.execute("DELETE FROM runs_rollup")
                    c.execute("EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF) " + s, {"since": a, "until": b})
                    out=[x[0] for x in c.fetchall()]
                    c.execute("ROLLBACK")
                print(out[-1], out[-2])
                open(f"/tmp/plan_{name[:2]}_{rolling._STATEMENTS.index(s)}.txt","w").write("\n".join(out))
    with connection.cursor() as c: c.execute("DELETE FROM runs_rollup")
    t=time.time(); print(rolling.run_once(seconds=600), time.time()-t)
    t=time.time(); print(rolling.run_once(), time.time()-t)
    for w in ("1h","24h","7d","90d"):
        for by in (None,"agent","version","tool"):
            t=time.time(); r=report.build_report(window=w, by=by); print(w, by, time.time()-t)
    with connection.cursor() as c:
        c.execute("SET session_replication_role = replica; SET statement_timeout=0; TRUNCATE runs_agentrun CASCADE; SET session_replication_role = origin;")
    connection.close()
