"""The first schema. `CHECKS` is what `runs.triggers.check_functions` gave; a test compares."""

import datetime
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.lookups
import pgtrigger.compiler
import pgtrigger.migrations
import runs.models.operations
import runs.state
import tools.declarations
import uuid_utils.compat
from django.conf import settings
import django.contrib.postgres.indexes
from django.db import migrations, models


CHECKS = """
CREATE OR REPLACE FUNCTION runs_is_legal_edge(
    operation text, from_state text, event text, to_state text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF operation IS NULL THEN
        RETURN (from_state || ' ' || event || ' ' || to_state) IN (' CREATE READY', 'CANCELLED COMPENSATE COMPENSATING', 'COMPENSATING CANCEL CANCELLED', 'COMPENSATING FAIL FAILED', 'COMPENSATING OPEN_STEP DECIDING', 'COMPENSATING RESUME COMPENSATING', 'COMPLETED COMPENSATE COMPENSATING', 'DECIDING CANCEL CANCELLED', 'DECIDING COMPENSATE COMPENSATING', 'DECIDING DECIDER_FAILED DECIDING', 'DECIDING FAIL FAILED', 'DECIDING MIGRATE DECIDING', 'DECIDING RECORD_DECISION DECISION_RECORDED', 'DECIDING RESUME DECIDING', 'DECISION_RECORDED CANCEL CANCELLED', 'DECISION_RECORDED CLOSE_STEP READY', 'DECISION_RECORDED COMPENSATE COMPENSATING', 'DECISION_RECORDED COMPLETE COMPLETED', 'DECISION_RECORDED FAIL FAILED', 'DECISION_RECORDED HOLD WAITING_FOR_APPROVAL', 'DECISION_RECORDED PREPARE TOOL_PREPARED', 'DECISION_RECORDED REPLAY TOOL_COMMITTED', 'DECISION_RECORDED RESUME DECISION_RECORDED', 'DECISION_RECORDED WAIT WAITING', 'FAILED COMPENSATE COMPENSATING', 'FAILED RETRY READY', 'READY CANCEL CANCELLED', 'READY COMPENSATE COMPENSATING', 'READY FAIL FAILED', 'READY MIGRATE READY', 'READY OPEN_STEP DECIDING', 'READY RESUME READY', 'TOOL_COMMITTED CANCEL CANCELLED', 'TOOL_COMMITTED CLOSE_STEP READY', 'TOOL_COMMITTED COMPENSATE COMPENSATING', 'TOOL_COMMITTED HOLD WAITING_FOR_APPROVAL', 'TOOL_COMMITTED PREPARE TOOL_PREPARED', 'TOOL_COMMITTED REPLAY TOOL_COMMITTED', 'TOOL_COMMITTED RESUME TOOL_COMMITTED', 'TOOL_PREPARED CANCEL CANCELLED', 'TOOL_PREPARED COMMIT TOOL_COMMITTED', 'TOOL_PREPARED COMPENSATE COMPENSATING', 'TOOL_PREPARED DENY DECISION_RECORDED', 'TOOL_PREPARED GIVE_UP DECISION_RECORDED', 'TOOL_PREPARED HOLD WAITING_FOR_APPROVAL', 'TOOL_PREPARED REPLAY TOOL_COMMITTED', 'TOOL_PREPARED RESUME TOOL_PREPARED', 'TOOL_PREPARED SEND TOOL_RUNNING', 'TOOL_RUNNING COMMIT TOOL_COMMITTED', 'TOOL_RUNNING LOSE_OUTCOME TOOL_STATUS_UNKNOWN', 'TOOL_RUNNING NOT_SENT TOOL_PREPARED', 'TOOL_RUNNING REJECT DECISION_RECORDED', 'TOOL_RUNNING TAKE_OVER TOOL_STATUS_UNKNOWN', 'TOOL_STATUS_UNKNOWN COMMIT TOOL_COMMITTED', 'TOOL_STATUS_UNKNOWN MIGRATE TOOL_STATUS_UNKNOWN', 'TOOL_STATUS_UNKNOWN NEED_PERSON WAITING_FOR_RESOLUTION', 'TOOL_STATUS_UNKNOWN NOT_SENT TOOL_PREPARED', 'TOOL_STATUS_UNKNOWN REJECT DECISION_RECORDED', 'TOOL_STATUS_UNKNOWN RESUME TOOL_STATUS_UNKNOWN', 'TOOL_STATUS_UNKNOWN SEND TOOL_RUNNING', 'WAITING CANCEL CANCELLED', 'WAITING COMPENSATE COMPENSATING', 'WAITING RESUME WAITING', 'WAITING WAKE READY', 'WAITING_FOR_APPROVAL APPROVE TOOL_PREPARED', 'WAITING_FOR_APPROVAL CANCEL CANCELLED', 'WAITING_FOR_APPROVAL COMMIT TOOL_COMMITTED', 'WAITING_FOR_APPROVAL COMPENSATE COMPENSATING', 'WAITING_FOR_APPROVAL DENY DECISION_RECORDED', 'WAITING_FOR_APPROVAL MIGRATE WAITING_FOR_APPROVAL', 'WAITING_FOR_APPROVAL PREPARE TOOL_PREPARED', 'WAITING_FOR_APPROVAL REPLAY TOOL_COMMITTED', 'WAITING_FOR_RESOLUTION COMMIT TOOL_COMMITTED', 'WAITING_FOR_RESOLUTION LOSE_OUTCOME TOOL_STATUS_UNKNOWN', 'WAITING_FOR_RESOLUTION MIGRATE WAITING_FOR_RESOLUTION', 'WAITING_FOR_RESOLUTION NOT_SENT TOOL_PREPARED', 'WAITING_FOR_RESOLUTION REJECT DECISION_RECORDED', 'WAITING_FOR_RESOLUTION RESUME WAITING_FOR_RESOLUTION', 'WAITING_FOR_RESOLUTION TAKE_OVER TOOL_STATUS_UNKNOWN');
    END IF;
    RETURN (from_state || ' ' || event || ' ' || to_state) IN (
        ' HOLD AWAITING_APPROVAL', ' INTEND PREPARED', ' REFUSE CANCELLED', 'AWAITING_APPROVAL APPROVE PREPARED', 'AWAITING_APPROVAL CANCEL CANCELLED', 'AWAITING_APPROVAL COMMIT COMMITTED', 'AWAITING_APPROVAL DENY CANCELLED', 'AWAITING_APPROVAL EXPIRE CANCELLED', 'AWAITING_APPROVAL HOLD AWAITING_APPROVAL', 'AWAITING_APPROVAL REPLACE CANCELLED', 'PREPARED CANCEL CANCELLED', 'PREPARED COMMIT COMMITTED', 'PREPARED GIVE_UP CANCELLED', 'PREPARED HOLD AWAITING_APPROVAL', 'PREPARED REFUSE CANCELLED', 'PREPARED REPLACE CANCELLED', 'PREPARED REPLAY COMMITTED', 'PREPARED SEND RUNNING', 'RUNNING COMMIT COMMITTED', 'RUNNING LOSE_OUTCOME UNKNOWN', 'RUNNING NOT_SENT PREPARED', 'RUNNING REJECT REJECTED', 'UNKNOWN COMMIT COMMITTED', 'UNKNOWN NOT_SENT PREPARED', 'UNKNOWN REJECT REJECTED', 'UNKNOWN SEND_AGAIN RUNNING');
END $$;

CREATE OR REPLACE FUNCTION runs_may_be_undated(state text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN state IN ('CANCELLED', 'COMPLETED', 'FAILED', 'WAITING', 'WAITING_FOR_APPROVAL', 'WAITING_FOR_RESOLUTION');
END $$;

-- Volatile, so that it sees what was committed while its statement waited for a lock.
CREATE OR REPLACE FUNCTION runs_policy_generation() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE AS $$
BEGIN
    RETURN (SELECT COALESCE(max(id), 0) FROM tools_toolpolicy);
END $$;

CREATE OR REPLACE FUNCTION runs_operation_is_dated(
    status text, attempts int, fence_token bigint, first_sent_at timestamptz,
    unknown_since timestamptz, settled_at timestamptz
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF (status IN ('CANCELLED', 'COMMITTED', 'REJECTED')) <> (settled_at IS NOT NULL) THEN
        RETURN false;
    END IF;
    IF status IN ('RUNNING', 'UNKNOWN')
        AND (attempts < 1 OR fence_token < 1 OR first_sent_at IS NULL) THEN
        RETURN false;
    END IF;
    RETURN status <> 'UNKNOWN' OR unknown_since IS NOT NULL;
END $$;
"""

DROP_CHECKS = """
DROP FUNCTION IF EXISTS runs_policy_generation();
DROP FUNCTION IF EXISTS runs_is_legal_edge(text, text, text, text);
DROP FUNCTION IF EXISTS runs_may_be_undated(text);
DROP FUNCTION IF EXISTS runs_operation_is_dated(
    text, int, bigint, timestamptz, timestamptz, timestamptz);
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '__first__'),
    ]

    operations = [
        migrations.RunSQL(sql=CHECKS, reverse_sql=DROP_CHECKS),
        migrations.CreateModel(
            name='FlowLimit',
            fields=[
                ('name', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('recent', models.JSONField(default=dict, help_text='requests that left, by the end of their slice of time (epoch)')),
                ('slots', models.JSONField(default=dict, help_text='holder: when it took its slot, and until when it has it (epoch)')),
                ('hold_seconds', models.FloatField(default=1.0, help_text='how long a slot is held, lately and on average')),
                ('told_until', models.FloatField(default=0.0, help_text='the latest time (epoch) for which somebody was told to come again')),
            ],
            options={
                'verbose_name': 'limit',
            },
        ),
        migrations.CreateModel(
            name='Release',
            fields=[
                ('id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('agents', models.JSONField(help_text='by name: version, and what it does on a change of it')),
                ('tools', models.JSONField(help_text='by name: version, and version of its arguments')),
                ('first_seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='Sweep',
            fields=[
                ('name', models.CharField(max_length=100, primary_key=True, serialize=False)),
                ('last_run_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('found', models.IntegerField(default=0)),
                ('done_until', models.DateTimeField(help_text='of one that works through time: everything before is done', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='AgentRun',
            fields=[
                ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                ('agent', models.CharField(max_length=100)),
                ('agent_version', models.CharField(max_length=64)),
                ('state', models.CharField(choices=[('READY', 'Ready'), ('DECIDING', 'Deciding'), ('DECISION_RECORDED', 'Decision recorded'), ('TOOL_PREPARED', 'Tool prepared'), ('TOOL_RUNNING', 'Tool running'), ('TOOL_STATUS_UNKNOWN', 'Tool status unknown'), ('TOOL_COMMITTED', 'Tool committed'), ('WAITING_FOR_APPROVAL', 'Waiting for approval'), ('WAITING_FOR_RESOLUTION', 'Waiting for resolution'), ('WAITING', 'Waiting'), ('COMPENSATING', 'Compensating'), ('COMPLETED', 'Completed'), ('FAILED', 'Failed'), ('CANCELLED', 'Cancelled')], default=runs.state.RunState['READY'], max_length=32)),
                ('objective', models.TextField(blank=True)),
                ('input', models.JSONField(default=dict)),
                ('labels', models.JSONField(default=dict)),
                ('result', models.JSONField(null=True)),
                ('error', models.TextField(blank=True)),
                ('created_by', models.CharField(max_length=100)),
                ('idempotency_key', models.CharField(max_length=255, null=True)),
                ('request_digest', models.CharField(max_length=64)),
                ('version', models.BigIntegerField(default=1)),
                ('step_number', models.IntegerField(default=0, help_text='the newest step; 0 before the first')),
                ('failures', models.IntegerField(default=0, help_text='tries without a usable decision in a row')),
                ('setbacks', models.IntegerField(db_default=0, help_text='errors in a row between two steps, where no attempt shows them')),
                ('fence_token', models.BigIntegerField(default=0)),
                ('lease_owner', models.CharField(blank=True, max_length=100)),
                ('lease_expires_at', models.DateTimeField(null=True)),
                ('wake_at', models.DateTimeField(null=True)),
                ('sweep_at', models.DateTimeField(null=True)),
                ('cancel_requested_at', models.DateTimeField(null=True)),
                ('cancel_requested_by', models.CharField(blank=True, max_length=100)),
                ('cancel_compensates', models.BooleanField(db_default=False, help_text='what it did is corrected before it is cancelled')),
                ('paused_at', models.DateTimeField(null=True)),
                ('pause_reason', models.TextField(blank=True)),
                ('priority', models.SmallIntegerField(db_default=0, help_text='higher goes first')),
                ('parent_operation', models.CharField(max_length=64, null=True)),
                ('root', models.UUIDField(help_text='the run at the top of its tree; null: itself', null=True)),
                ('depth', models.SmallIntegerField(db_default=0, help_text='0 for a run without a parent')),
                ('parent_told_at', models.DateTimeField(help_text="when the parent was made due after this run's end", null=True)),
                ('forked_at_step', models.IntegerField(null=True)),
                ('lineage', models.UUIDField(help_text="names the runs whose intents count as this one's; null: its own", null=True)),
                ('inherited_steps', models.IntegerField(db_default=0)),
                ('voided_steps', models.IntegerField(db_default=0)),
                ('compensating_since', models.DateTimeField(null=True)),
                ('compensation_reason', models.TextField(blank=True, db_default='')),
                ('compensation_ending', models.CharField(blank=True, db_default='', max_length=32)),
                ('spent_steps', models.IntegerField(db_default=0)),
                ('spent_tokens', models.BigIntegerField(db_default=0)),
                ('spent_cost_usd', models.DecimalField(db_default=0, decimal_places=6, max_digits=16)),
                ('budget', models.JSONField(help_text="limits of this very run, in place of its agent's: runs.budgets", null=True)),
                ('newest_action', models.CharField(blank=True, db_default='', max_length=64)),
                ('repeats', models.IntegerField(db_default=0)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('finished_at', models.DateTimeField(null=True)),
                ('created_by_user', models.ForeignKey(db_index=False, help_text='the same person under whatever name: who started it may not sign in it', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('forked_from', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='forks', to='runs.agentrun')),
                ('parent', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='children', to='runs.agentrun')),
                ('traceparent', models.CharField(blank=True, db_default='', help_text='the W3C trace context of the request that started it; empty: its own', max_length=55)),
            ],
            options={
                'verbose_name': 'run',
                'indexes': [models.Index(condition=models.Q(('wake_at__isnull', False)), fields=['agent', '-priority', 'wake_at', 'id'], name='run_due'), models.Index(condition=models.Q(('finished_at__isnull', True)), fields=['agent', 'agent_version', 'id'], name='run_active'), models.Index(condition=models.Q(('lease_owner', ''), _negated=True), fields=['agent'], name='run_held'), models.Index(condition=models.Q(('finished_at__isnull', True), ('paused_at__isnull', False)), fields=['paused_at'], name='run_paused'), models.Index(condition=models.Q(('finished_at__isnull', True), ('paused_at__isnull', True), ('wake_at__isnull', True)), fields=['id'], name='run_undated'), models.Index(fields=['-created_at', '-id'], name='run_newest'), models.Index(condition=models.Q(('parent__isnull', False)), fields=['parent'], name='run_children'), models.Index(condition=models.Q(('root__isnull', False)), fields=['root'], name='run_tree'), models.Index(condition=models.Q(('forked_from__isnull', False)), fields=['forked_from'], name='run_forks'), models.Index(condition=models.Q(('finished_at__isnull', False), ('parent__isnull', False), ('parent_told_at__isnull', True)), fields=['finished_at'], name='run_untold')],
                'constraints': [models.CheckConstraint(condition=models.Q(('wake_at__isnull', False), ('paused_at__isnull', False), models.Func('state', function='runs_may_be_undated', output_field=models.BooleanField()), _connector='OR'), name='run_has_a_next_mover'), models.CheckConstraint(condition=models.Q(('finished_at__isnull', True), ('wake_at__isnull', True), _connector='OR'), name='run_final_has_no_date'), models.CheckConstraint(condition=models.Q(models.Q(('lease_expires_at__isnull', True), ('lease_owner', '')), models.Q(('lease_expires_at__isnull', False), models.Q(('lease_owner', ''), _negated=True)), _connector='OR'), name='run_lease_has_owner'), models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('idempotency_key', 'created_by'), name='run_unique_idempotency_key'), models.UniqueConstraint(condition=models.Q(('parent_operation__isnull', False)), fields=('parent_operation',), name='run_one_per_parent_operation')],
            },
        ),
        migrations.CreateModel(
            name='Definition',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('agent', 'An agent: its decider, tools, output and constraints'), ('prompt', 'What an llm is told'), ('tool', 'A tool: its arguments and how it is recovered')], max_length=16)),
                ('name', models.CharField(max_length=100)),
                ('version', models.CharField(max_length=64)),
                ('body', models.JSONField()),
                ('first_seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='when a worker that serves it first started')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('kind', 'name', 'version'), name='definition_unique_version')],
            },
        ),
        migrations.CreateModel(
            name='Step',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField()),
                ('opened_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('closed_at', models.DateTimeField(null=True)),
                ('voided_at', models.DateTimeField(help_text='taken back by a retry: it did nothing, and its plan is done again', null=True)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='runs.agentrun')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('run', 'number'), name='step_unique_number'), models.UniqueConstraint(condition=models.Q(('closed_at__isnull', True)), fields=('run',), name='step_one_open_per_run')],
            },
        ),
        migrations.CreateModel(
            name='Handoff',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField(help_text='from 1')),
                ('through_step', models.IntegerField()),
                ('reason', models.CharField(choices=[('window', 'The window of recent events was full'), ('version', 'Another version of the agent goes on'), ('delegated', 'Another agent goes on')], max_length=16)),
                ('schema_version', models.IntegerField()),
                ('body', models.JSONField()),
                ('written_by', models.CharField(help_text='the llm that wrote it, or `rows`: built without one', max_length=100)),
                ('repairs', models.IntegerField(help_text="how often the llm's own was sent back")),
                ('fence_token', models.BigIntegerField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='handoffs', to='runs.agentrun')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('run', 'number'), name='handoff_unique_number')],
            },
        ),
        migrations.CreateModel(
            name='Schedule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60, unique=True)),
                ('agent', models.CharField(max_length=100)),
                ('objective', models.TextField(blank=True)),
                ('input', models.JSONField(default=dict)),
                ('labels', models.JSONField(default=dict)),
                ('priority', models.SmallIntegerField(help_text="null: the agent's", null=True)),
                ('cron', models.CharField(max_length=100)),
                ('time_zone', models.CharField(default='UTC', max_length=100)),
                ('catch_up', models.CharField(choices=[('skip', 'None of the missed'), ('latest', 'Only the newest of the missed'), ('all', 'Every one of the missed, oldest first')], default='latest', max_length=16)),
                ('enabled', models.BooleanField(default=True)),
                ('next_at', models.DateTimeField(help_text='the next slot; null while disabled', null=True)),
                ('last_slot', models.DateTimeField(help_text='the newest that was to start a run', null=True)),
                ('last_missed', models.DateTimeField(help_text='the newest that passed without a start, by the catch-up policy', null=True)),
                ('last_error', models.TextField(blank=True, help_text='why the last slot started nothing')),
                ('version', models.IntegerField(default=1, help_text='of what people wrote; grows by a save')),
                ('created_by', models.CharField(max_length=100)),
                ('saved_by', models.CharField(max_length=100)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('saved_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('last_run', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='runs.agentrun')),
                ('saved_by_user', models.ForeignKey(db_index=False, help_text='counts as who started its runs, and may not sign in them', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('next_at__isnull', False)), fields=['next_at'], name='schedule_due')],
                'constraints': [models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9][a-z0-9_-]*$')), name='schedule_name_is_plain'), models.CheckConstraint(condition=models.Q(('cron__regex', '^\\S+( \\S+){4}$')), name='schedule_cron_has_five_fields'), models.CheckConstraint(condition=models.Q(models.Q(('enabled', True), ('next_at__isnull', False)), models.Q(('enabled', False), ('next_at__isnull', True)), _connector='OR'), name='schedule_dated_while_enabled'), models.CheckConstraint(condition=models.Q(('last_slot__isnull', True), ('next_at__isnull', True), ('next_at__gt', models.F('last_slot')), _connector='OR'), name='schedule_next_is_later'), models.CheckConstraint(condition=models.Q(('catch_up__in', ['skip', 'latest', 'all'])), name='schedule_catch_up_is_known'), models.CheckConstraint(condition=models.Q(('priority__isnull', True), ('priority__range', (-100, 100)), _connector='OR'), name='schedule_priority_in_range'), models.CheckConstraint(condition=django.db.models.lookups.Exact(models.Func('labels', function='jsonb_typeof', output_field=models.TextField()), models.Value('object')), name='schedule_labels_are_an_object')],
            },
        ),
        migrations.CreateModel(
            name='Signal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('event_id', models.CharField(max_length=255)),
                ('payload', models.JSONField(null=True)),
                ('digest', models.CharField(help_text='of name and payload: one id, one message', max_length=64)),
                ('sent_by', models.CharField(max_length=100)),
                ('sent_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('delivered_at', models.DateTimeField(null=True)),
                ('delivered_step', models.IntegerField(null=True)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='signals', to='runs.agentrun')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('delivered_at__isnull', True)), fields=['run', 'name', 'id'], name='signal_undelivered')],
                'constraints': [models.UniqueConstraint(fields=('run', 'event_id'), name='signal_unique_event')],
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('name', models.CharField(help_text='as in lease_owner', max_length=100, primary_key=True, serialize=False)),
                ('host', models.CharField(max_length=255)),
                ('boot_id', models.CharField(blank=True, max_length=64)),
                ('pid_namespace', models.CharField(blank=True, max_length=64)),
                ('pid', models.IntegerField()),
                ('pid_started', models.BigIntegerField(help_text="the kernel's start time of the process, in clock ticks after boot", null=True)),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('last_seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('ended_at', models.DateTimeField(null=True)),
                ('ended_by', models.CharField(blank=True, choices=[('reported', 'It said so itself'), ('supervisor', 'Its supervisor saw it exit'), ('successor', 'A newer process on its host found it gone'), ('operator', 'An operator said so')], max_length=16)),
                ('evidence', models.TextField(blank=True)),
                ('release', models.ForeignKey(db_index=False, help_text='what it serves', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='workers', to='runs.release')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['host', 'pid'], name='worker_alive'), models.Index(fields=['-started_at', 'name'], name='worker_newest')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('ended_by', '')), models.Q(('ended_at__isnull', False), models.Q(('ended_by', ''), _negated=True)), _connector='OR'), name='worker_end_is_explained')],
            },
        ),
        migrations.CreateModel(
            name='ControlRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('cancel', 'Cancel it'), ('pause', 'Open no further step'), ('resume', 'Let it go on'), ('retry', 'Go on from the last checkpoint'), ('fork', 'Start another run from one of its steps'), ('compensate', 'Correct what it did')], max_length=16)),
                ('by', models.CharField(max_length=100)),
                ('by_user_id', models.BigIntegerField(help_text='the person, under whatever name', null=True)),
                ('reason', models.TextField(blank=True)),
                ('details', models.JSONField(default=dict)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='requests', to='runs.agentrun')),
            ],
            options={
                'verbose_name': 'request',
                'indexes': [models.Index(fields=['run', 'at', 'id'], name='request_of_run')],
            },
        ),
        migrations.CreateModel(
            name='LlmRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('fence_token', models.BigIntegerField()),
                ('purpose', models.CharField(choices=[('decide', 'The next decision'), ('handoff', 'An artifact that replaces old context')], max_length=16)),
                ('llm', models.CharField(help_text='as it was asked for', max_length=100)),
                ('llm_version', models.CharField(blank=True, help_text='as it answered', max_length=100)),
                ('prompt_version', models.CharField(max_length=64)),
                ('outcome', models.CharField(choices=[('used', 'Its answer was used'), ('unusable', 'It answered what cannot be used'), ('failed', 'It did not answer')], max_length=16)),
                ('problem', models.CharField(blank=True, choices=[('empty', 'Neither a call nor a text'), ('truncated', 'Cut off at the most tokens that an answer may have'), ('refused', 'The llm, or a filter of its provider, refused'), ('malformed', 'Arguments that nothing can be made of'), ('repeated_call_id', 'Two calls under one id'), ('oversized', 'Larger than what can be stored'), ('too_many_calls', 'More calls than one decision may have'), ('mixed', 'A final answer beside calls, or two final answers'), ('bad_result', "A final answer that does not fit the agent's output"), ('bad_handoff', 'A handoff that the database contradicts'), ('too_long', 'More was asked than the llm can read')], max_length=32)),
                ('detail', models.TextField(blank=True, help_text='what was wrong, bounded')),
                ('said', models.TextField(blank=True, help_text='what it wrote beside its calls, bounded')),
                ('finish_reason', models.CharField(blank=True, max_length=32)),
                ('response_id', models.CharField(blank=True, help_text="the provider's own", max_length=255)),
                ('input_tokens', models.IntegerField(help_text='cached ones included', null=True)),
                ('cached_tokens', models.IntegerField(null=True)),
                ('output_tokens', models.IntegerField(help_text='reasoning included', null=True)),
                ('reasoning_tokens', models.IntegerField(null=True)),
                ('cost_usd', models.DecimalField(decimal_places=6, help_text='null where no price is known', max_digits=16, null=True)),
                ('latency_ms', models.IntegerField()),
                ('shown', models.JSONField(default=dict, help_text='which rows the context was made of: references, not copies')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='runs.agentrun')),
                ('step', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='llm_requests', to='runs.step')),
            ],
            options={
                'verbose_name': 'llm request',
                'indexes': [models.Index(fields=['step', 'id'], name='llm_request_of_step'), models.Index(fields=['run', 'id'], name='llm_request_of_run')],
            },
        ),
        migrations.CreateModel(
            name='Question',
            fields=[
                ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                ('step_number', models.IntegerField()),
                ('text', models.TextField()),
                ('schema', models.JSONField(help_text='JSON schema of the answer')),
                ('groups', models.JSONField(default=list, help_text='whose members may answer; empty: anybody')),
                ('escalate_to', models.JSONField(default=list, help_text='groups that may answer once escalated')),
                ('status', models.CharField(choices=[('open', 'Waits for an answer'), ('answered', 'Answered by a person'), ('expired', 'Nobody answered in time'), ('cancelled', 'Its run does not wait any more')], default='open', max_length=16)),
                ('asked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('answer_by', models.DateTimeField(null=True)),
                ('remind_at', models.DateTimeField(help_text='emptied once reminded', null=True)),
                ('escalate_at', models.DateTimeField(help_text='emptied once escalated', null=True)),
                ('escalated_at', models.DateTimeField(null=True)),
                ('answer', models.JSONField(null=True)),
                ('answered_by', models.CharField(blank=True, max_length=100)),
                ('ended_at', models.DateTimeField(null=True)),
                ('event_id', models.CharField(blank=True, help_text='of the answer', max_length=255)),
                ('answered_by_user', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='questions', to='runs.agentrun')),
                ('step', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='question', to='runs.step')),
            ],
            options={
                'permissions': [('answer_question', "Can answer an agent's question")],
                'indexes': [models.Index(fields=['run', 'step_number'], name='question_of_run'), models.Index(fields=['-asked_at', '-id'], name='question_newest'), models.Index(fields=['status', '-asked_at', '-id'], name='question_by_status'), models.Index(condition=models.Q(('remind_at__isnull', False), ('status', 'open')), fields=['remind_at'], name='question_reminds'), models.Index(condition=models.Q(('escalate_at__isnull', False), ('status', 'open')), fields=['escalate_at'], name='question_escalates')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('status', 'open')), models.Q(models.Q(('status', 'open'), _negated=True), ('ended_at__isnull', False)), _connector='OR'), name='question_end_is_dated'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'answered'), models.Q(('answered_by', ''), _negated=True)), models.Q(models.Q(('status', 'answered'), _negated=True), ('answer__isnull', True), ('answered_by', '')), _connector='OR'), name='question_answer_has_an_author')],
            },
        ),
        migrations.CreateModel(
            name='StepAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField()),
                ('fence_token', models.BigIntegerField()),
                ('worker', models.CharField(max_length=100)),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('ended_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, choices=[('done', 'Step closed'), ('parked', 'Given back until something is due'), ('lost', 'Its worker lost the lease or died'), ('failed', 'No usable decision')], max_length=16)),
                ('step', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='runs.step')),
            ],
            options={
                'verbose_name': 'attempt',
                'constraints': [models.UniqueConstraint(fields=('step', 'fence_token'), name='attempt_unique_token'), models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('step',), name='attempt_one_open_per_step')],
            },
        ),
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('step', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='checkpoint', serialize=False, to='runs.step')),
                ('state', models.JSONField(help_text='encoded by runs.context, with a schema version')),
                ('fence_token', models.BigIntegerField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='runs.agentrun')),
            ],
        ),
        migrations.CreateModel(
            name='ModelDecision',
            fields=[
                ('step', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='decision', serialize=False, to='runs.step')),
                ('fence_token', models.BigIntegerField()),
                ('kind', models.CharField(max_length=32)),
                ('body', models.JSONField(help_text='the decision, encoded by runs.decisions')),
                ('decider', models.CharField(max_length=100)),
                ('agent_version', models.CharField(max_length=64)),
                ('tool_versions', models.JSONField(default=dict)),
                ('prompt_version', models.CharField(blank=True, db_default='', max_length=64)),
                ('llm_version', models.CharField(blank=True, db_default='', help_text='the llm, as it answered', max_length=100)),
                ('policy_version', models.CharField(blank=True, db_default='', help_text='of the policies in force', max_length=64)),
                ('recorded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='runs.agentrun')),
            ],
            options={
                'verbose_name': 'decision',
            },
        ),
        migrations.CreateModel(
            name='Wait',
            fields=[
                ('step', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='wait', serialize=False, to='runs.step')),
                ('step_number', models.IntegerField()),
                ('kind', models.CharField(choices=[('timer', 'A time'), ('signal', 'A signal'), ('question', "A person's answer"), ('child', 'Runs that it started')], max_length=16)),
                ('name', models.TextField(blank=True, help_text='of the signal; the question; empty else')),
                ('until', models.DateTimeField(help_text='when it is over at the latest', null=True)),
                ('began_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('ended_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, choices=[('came', 'It came'), ('timed_out', 'It did not come in time'), ('cancelled', 'Its run was cancelled')], max_length=16)),
                ('result', models.JSONField(help_text='the payload or the answer', null=True)),
                ('author', models.CharField(blank=True, help_text='who sent or answered it', max_length=100)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='waits', to='runs.agentrun')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('run', 'step_number'), name='wait_unique_step'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('outcome', '')), models.Q(('ended_at__isnull', False), models.Q(('outcome', ''), _negated=True)), _connector='OR'), name='wait_end_has_an_outcome')],
            },
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('LATE_COMMIT', 'An effect appeared after its operation was closed'), ('DUPLICATE', 'The provider has more than one effect of one operation'), ('OVERDUE', "Unknown for longer than its tool's objective"), ('UNAPPROVED', 'Sent without the signature that its policy asks for')], max_length=24)),
                ('external_ref', models.CharField(blank=True, max_length=255)),
                ('detail', models.TextField(blank=True)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='runs.agentrun')),
            ],
            options={
                'indexes': [models.Index(fields=['run', 'id'], name='incident_of_run'), models.Index(fields=['-at', '-id'], name='incident_newest'), models.Index(fields=['kind', '-at', '-id'], name='incident_by_kind')],
            },
        ),
        migrations.CreateModel(
            name='Notice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.CharField(max_length=160, unique=True)),
                ('kind', models.CharField(choices=[('approval.requested', 'A signature is asked for'), ('approval.reminder', 'A signature is still missing'), ('approval.escalated', 'A second group is asked'), ('approval.decided', 'Approved, denied, expired or superseded'), ('operation.unknown', 'An effect may or may not have happened'), ('operation.needs_person', 'A person must settle an operation'), ('operation.settled', 'A call from outside came to its end'), ('run.paused', 'A run was paused and waits for a person'), ('run.finished', 'A run came to its end'), ('question.asked', 'An agent asks people'), ('question.reminder', 'An answer is still missing'), ('question.escalated', 'A second group is asked for an answer'), ('question.answered', 'A person answered')], max_length=32)),
                ('operation_id', models.CharField(blank=True, max_length=64)),
                ('status', models.CharField(blank=True, help_text='what it came to', max_length=32)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('handed_on_at', models.DateTimeField(help_text='when it was given to everybody who is to hear of it', null=True)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='runs.agentrun')),
                ('question', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='runs.question')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('handed_on_at__isnull', True)), fields=['id'], name='notice_to_hand_on'), models.Index(fields=['run', 'id'], name='notice_of_run')],
            },
        ),
        migrations.CreateModel(
            name='ToolObservation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('source', models.CharField(choices=[('worker', 'The worker that sent it'), ('stale_worker', 'A worker whose lease or deadline was over'), ('take_over', 'The worker that found its sender gone'), ('look_up', 'A question to the provider'), ('person', 'A person'), ('handler', "Its tool's compensation_handler")], max_length=16)),
                ('verdict', models.CharField(choices=[('committed', 'It happened'), ('rejected', 'Refused for good'), ('not_sent', 'Nothing left the process'), ('unknown', 'It may or may not have happened'), ('not_found', 'The provider does not know it (yet)'), ('indeterminate', 'The provider could not say'), ('failed', 'The look-up itself failed: it says nothing'), ('corrected', 'It happened, and no compensation is to be sent for it')], max_length=16)),
                ('stage', models.CharField(blank=True, help_text='where a call was interrupted', max_length=16)),
                ('window', models.JSONField(help_text='of a send: when it was claimed, when bytes left, when it ends', null=True)),
                ('detail', models.TextField(blank=True)),
                ('result', models.JSONField(null=True)),
                ('external_ref', models.CharField(blank=True, max_length=255)),
                ('also', models.JSONField(help_text='references of further effects that the look-up saw', null=True)),
                ('attempt', models.IntegerField(help_text='the send it speaks about, from 1')),
                ('fence_token', models.BigIntegerField()),
                ('observed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='runs.agentrun')),
            ],
            options={
                'verbose_name': 'observation',
            },
        ),
        migrations.CreateModel(
            name='ToolOperation',
            fields=[
                ('id', runs.models.operations.OperationIdField(max_length=64, primary_key=True, serialize=False)),
                ('step_number', models.IntegerField()),
                ('ordinal', models.IntegerField(help_text="the call's place in the recorded decision, from 0")),
                ('revision', models.IntegerField(default=0, help_text='0 as decided; n for the n-th change of its arguments')),
                ('run_version', models.BigIntegerField(help_text="the run's version at the last write")),
                ('status', models.CharField(choices=[('AWAITING_APPROVAL', 'Awaiting approval'), ('PREPARED', 'Prepared'), ('RUNNING', 'Running'), ('UNKNOWN', 'Unknown'), ('COMMITTED', 'Committed'), ('REJECTED', 'Rejected'), ('CANCELLED', 'Cancelled')], max_length=32)),
                ('tool', models.CharField(max_length=100)),
                ('tool_version', models.CharField(blank=True, max_length=64)),
                ('arguments_version', models.CharField(blank=True, help_text='of the schema that they fit', max_length=64)),
                ('effect_type', models.CharField(blank=True, max_length=32)),
                ('provider', models.CharField(blank=True, max_length=100)),
                ('account', models.CharField(blank=True, max_length=100)),
                ('arguments', models.JSONField()),
                ('arguments_digest', models.CharField(max_length=64)),
                ('sensitive', models.JSONField(default=list)),
                ('intent', models.CharField(blank=True, max_length=64)),
                ('holds_intent', models.CharField(help_text='names the intent in its scope while this operation may carry it out or has', max_length=64, null=True)),
                ('idempotency_key', models.CharField(max_length=255)),
                ('key_expires_at', models.DateTimeField(null=True)),
                ('policy_outcome', models.CharField(blank=True, max_length=32)),
                ('policy_rule', models.TextField(blank=True)),
                ('policy_version', models.CharField(blank=True, max_length=64)),
                ('fence_token', models.BigIntegerField(default=0, help_text='of the newest send')),
                ('attempts', models.IntegerField(default=0, help_text='sends begun')),
                ('look_ups', models.IntegerField(default=0, help_text='reconciliations tried')),
                ('first_sent_at', models.DateTimeField(null=True)),
                ('last_sent_at', models.DateTimeField(null=True)),
                ('in_flight_until', models.DateTimeField(help_text='until then an earlier send may still be on its way', null=True)),
                ('settles_at', models.DateTimeField(help_text='until then an earlier send may still take effect at the provider', null=True)),
                ('unknown_since', models.DateTimeField(help_text='set by the first unknown outcome, cleared only by an answer', null=True)),
                ('next_reconcile_at', models.DateTimeField(null=True)),
                ('next_try_at', models.DateTimeField(help_text='prepared, and sent no sooner: an earlier try did not leave', null=True)),
                ('needs_person_since', models.DateTimeField(help_text='unknown, and nothing that may be asked or sent can settle it', null=True)),
                ('next_watch_at', models.DateTimeField(help_text='closed, and looked up again then for an effect that came late', null=True)),
                ('watch_until', models.DateTimeField(null=True)),
                ('external_ref', models.CharField(blank=True, max_length=255)),
                ('result', models.JSONField(null=True)),
                ('error', models.TextField(blank=True)),
                ('never_sent', models.CharField(blank=True, choices=[('invalid', 'Unknown tool or bad arguments'), ('refused', 'Refused by policy'), ('denied', 'Refused by a person'), ('expired', 'Nobody decided in time'), ('changed', 'Other arguments took their place'), ('repeat', 'The call that it repeats came to nothing'), ('given_up', 'No try left this process'), ('cancelled', 'Its run was cancelled')], help_text='why it was cancelled', max_length=16)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('settled_at', models.DateTimeField(null=True)),
                ('compensates', models.ForeignKey(db_index=False, help_text='the committed operation that this one corrects', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='compensated_by', to='runs.tooloperation')),
                ('repeats', models.ForeignKey(db_index=False, help_text='the operation that has the same intent, and whose result answers this one', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='repeated_by', to='runs.tooloperation')),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='operations', to='runs.agentrun')),
                ('step', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='operations', to='runs.step')),
            ],
            options={
                'verbose_name': 'operation',
                'permissions': [('resolve_operation', 'Can settle an unknown operation')],
                'indexes': [models.Index(condition=models.Q(('status', runs.state.OperationStatus['UNKNOWN'])), fields=['unknown_since'], name='operation_unknown'), models.Index(condition=models.Q(('status', runs.state.OperationStatus['AWAITING_APPROVAL'])), fields=['created_at'], name='operation_held'), models.Index(fields=['-created_at', '-id'], name='operation_newest'), models.Index(condition=models.Q(('never_sent', 'denied')), fields=['run', 'intent'], name='operation_denied'), models.Index(condition=models.Q(('last_sent_at__isnull', False), models.Q(('effect_type', tools.declarations.EffectType['READ']), _negated=True)), fields=['tool', 'last_sent_at'], name='operation_sent'), models.Index(condition=models.Q(('status__in', [runs.state.OperationStatus['AWAITING_APPROVAL'], runs.state.OperationStatus['PREPARED'], runs.state.OperationStatus['UNKNOWN']])), fields=['tool'], name='operation_waits'), models.Index(condition=models.Q(('next_watch_at__isnull', False)), fields=['next_watch_at'], name='operation_watched'), models.Index(condition=models.Q(('repeats__isnull', False)), fields=['repeats'], name='operation_repeats'), models.Index(condition=models.Q(('compensates__isnull', False)), fields=['compensates'], name='operation_compensates')],
                'constraints': [models.UniqueConstraint(fields=('run', 'step_number', 'ordinal', 'revision'), name='operation_unique_place'), models.UniqueConstraint(fields=('holds_intent',), name='operation_unique_intent'), models.CheckConstraint(condition=models.Func('status', 'attempts', 'fence_token', 'first_sent_at', 'unknown_since', 'settled_at', function='runs_operation_is_dated', output_field=models.BooleanField()), name='operation_standing_is_dated')],
            },
        ),
        migrations.CreateModel(
            name='Transition',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.BigIntegerField(help_text="the run's version that this edge led to")),
                ('event', models.CharField(max_length=24)),
                ('from_state', models.CharField(blank=True, max_length=32)),
                ('to_state', models.CharField(max_length=32)),
                ('reason', models.TextField(blank=True)),
                ('actor', models.CharField(max_length=100)),
                ('fence_token', models.BigIntegerField()),
                ('step_number', models.IntegerField()),
                ('attempt', models.IntegerField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('operation', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='journal', to='runs.tooloperation')),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='journal', to='runs.agentrun')),
            ],
            options={
                'indexes': [models.Index(fields=['run', 'version', 'id'], name='transition_of_run')],
                'constraints': [models.CheckConstraint(condition=models.Func('operation', 'from_state', 'event', 'to_state', function='runs_is_legal_edge', output_field=models.BooleanField()), name='transition_is_a_legal_edge')],
            },
        ),
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                ('status', models.CharField(choices=[('pending', 'Waits for signatures'), ('approved', 'Signed by all who must'), ('denied', 'Refused by a person'), ('expired', 'Ran out before anybody decided'), ('cancelled', 'Its run was cancelled, or the call will not be sent'), ('superseded', 'Another request took its place, or none is needed any more')], default='pending', max_length=16)),
                ('fingerprint', models.CharField(max_length=80)),
                ('covered', models.JSONField(help_text='what the fingerprint is made from: runs.fingerprint')),
                ('rule', models.TextField(help_text='which rule asked, and why')),
                ('policy_version', models.CharField(max_length=64)),
                ('asked_because', models.TextField(blank=True, help_text='what changed since the request that it supersedes')),
                ('resource_version', models.CharField(blank=True, max_length=255)),
                ('requester', models.CharField(help_text='who proposed it, and may not sign', max_length=100)),
                ('groups', models.JSONField(default=list, help_text='each must be represented by a signer')),
                ('quorum', models.IntegerField(default=1, help_text='distinct people who must sign')),
                ('escalate_to', models.JSONField(default=list, help_text='groups that may sign once escalated')),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('approve_by', models.DateTimeField()),
                ('execute_within', models.DurationField(default=datetime.timedelta(seconds=3600))),
                ('execute_by', models.DateTimeField(help_text='set by the verdict', null=True)),
                ('remind_at', models.DateTimeField(help_text='emptied once reminded', null=True)),
                ('escalate_at', models.DateTimeField(help_text='emptied once escalated', null=True)),
                ('escalated_at', models.DateTimeField(null=True)),
                ('decided_at', models.DateTimeField(null=True)),
                ('decided_by', models.TextField(blank=True, help_text='all who signed, or who refused it')),
                ('reason', models.TextField(blank=True, help_text='why it was denied, or ended undecided')),
                ('spent_at', models.DateTimeField(help_text='by the send that it allowed', null=True)),
                ('spent_under', models.BigIntegerField(help_text='the fencing token of that send', null=True)),
                ('proposed_arguments', models.JSONField(help_text='what a person wants sent in place of what was asked', null=True)),
                ('proposed_by', models.CharField(blank=True, max_length=100)),
                ('proposed_by_user', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('requester_user', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='approvals', to='runs.agentrun')),
                ('supersedes', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='superseded_by', to='runs.approval')),
                ('operation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='approvals', to='runs.tooloperation')),
            ],
            options={
                'permissions': [('decide_approval', 'Can sign or refuse an action')],
                'indexes': [models.Index(fields=['operation', '-requested_at'], name='approval_of'), models.Index(fields=['run', 'requested_at'], name='approval_of_run'), models.Index(condition=models.Q(('status', 'pending')), fields=['approve_by'], name='approval_due'), models.Index(condition=models.Q(('remind_at__isnull', False), ('status', 'pending')), fields=['remind_at'], name='approval_reminds'), models.Index(condition=models.Q(('escalate_at__isnull', False), ('status', 'pending')), fields=['escalate_at'], name='approval_escalates'), models.Index(fields=['-requested_at', '-id'], name='approval_newest'), models.Index(fields=['status', '-requested_at', '-id'], name='approval_by_status'), models.Index(condition=models.Q(('supersedes__isnull', False)), fields=['supersedes'], name='approval_supersedes')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('status', 'pending')), fields=('operation',), name='approval_one_pending_per_operation'), models.CheckConstraint(condition=models.Q(models.Q(('spent_at__isnull', True), ('spent_under__isnull', True)), models.Q(('spent_at__isnull', False), ('spent_under__isnull', False)), _connector='OR'), name='approval_spent_under_a_token'), models.CheckConstraint(condition=models.Q(('spent_at__isnull', True), ('status__in', ('approved', 'superseded')), _connector='OR'), name='approval_only_approved_is_spent'), models.CheckConstraint(condition=models.Q(models.Q(('status', 'approved'), _negated=True), ('execute_by__isnull', False), _connector='OR'), name='approval_approved_has_an_end')],
            },
        ),
        migrations.AddField(
            model_name='incident',
            name='operation',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='runs.tooloperation'),
        ),
        migrations.AddField(
            model_name='notice',
            name='approval',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='runs.approval'),
        ),
        migrations.AddField(
            model_name='toolobservation',
            name='operation',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='observations', to='runs.tooloperation'),
        ),
        migrations.AddField(
            model_name='tooloperation',
            name='approval',
            field=models.ForeignKey(db_index=False, help_text='the newest request for a signature on it', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='runs.approval'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(fields=('operation', 'kind', 'external_ref'), name='incident_unique_finding'),
        ),
        migrations.AddIndex(
            model_name='toolobservation',
            index=models.Index(fields=['operation', 'id'], name='observation_of'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='definition',
            trigger=pgtrigger.compiler.Trigger(name='definition_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'definition rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='864f9d7069e1c653174e0d5f78d0b6b1109c5ee1', operation='UPDATE', pgid='pgtrigger_definition_never_changes_8b265', table='runs_definition', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='definition',
            trigger=pgtrigger.compiler.Trigger(name='definition_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'definition rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='bd9313795dfa4168af33b28e93ee137bdeefd67a', operation='DELETE', pgid='pgtrigger_definition_outlives_nothing_but_its_run_34e9f', table='runs_definition', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='release',
            trigger=pgtrigger.compiler.Trigger(name='release_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'release rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='5dbcd24121d4169d9dd5a572e9481b06d5ffb249', operation='UPDATE', pgid='pgtrigger_release_never_changes_29778', table='runs_release', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='release',
            trigger=pgtrigger.compiler.Trigger(name='release_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'release rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='fd67054dff3460b6540039844097189852dfd02b', operation='DELETE', pgid='pgtrigger_release_outlives_nothing_but_its_run_200a8', table='runs_release', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='agentrun',
            trigger=pgtrigger.compiler.Trigger(name='run_created_with_journal', sql=pgtrigger.compiler.UpsertTriggerSql(constraint='CONSTRAINT', declare='DECLARE expected text; edge record;', func="\n    expected := '';\n    FOR edge IN\n        SELECT from_state, to_state FROM runs_transition\n        WHERE run_id = NEW.id AND version = NEW.version\n          AND operation_id IS NOT DISTINCT FROM NULL\n        ORDER BY id\n    LOOP\n        IF edge.from_state <> expected THEN\n            RAISE EXCEPTION 'journal of run % version % leaves % where % was expected',\n                NEW.id, NEW.version, edge.from_state, expected USING ERRCODE = 'check_violation';\n        END IF;\n        expected := edge.to_state;\n    END LOOP;\n    IF expected <> NEW.state THEN\n        RAISE EXCEPTION 'run % version %: no journal row explains % to %',\n            NEW.id, NEW.version, '', NEW.state USING ERRCODE = 'check_violation';\n    END IF;\n    RETURN NULL;\n", hash='96b1e36d8a81037e28863c1a5938bb68287d1256', operation='INSERT', pgid='pgtrigger_run_created_with_journal_96d49', table='runs_agentrun', timing='DEFERRABLE INITIALLY DEFERRED', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='agentrun',
            trigger=pgtrigger.compiler.Trigger(name='run_moved_with_journal', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.state IS DISTINCT FROM NEW.state)', constraint='CONSTRAINT', declare='DECLARE expected text; edge record;', func="\n    expected := OLD.state;\n    FOR edge IN\n        SELECT from_state, to_state FROM runs_transition\n        WHERE run_id = NEW.id AND version = NEW.version\n          AND operation_id IS NOT DISTINCT FROM NULL\n        ORDER BY id\n    LOOP\n        IF edge.from_state <> expected THEN\n            RAISE EXCEPTION 'journal of run % version % leaves % where % was expected',\n                NEW.id, NEW.version, edge.from_state, expected USING ERRCODE = 'check_violation';\n        END IF;\n        expected := edge.to_state;\n    END LOOP;\n    IF expected <> NEW.state THEN\n        RAISE EXCEPTION 'run % version %: no journal row explains % to %',\n            NEW.id, NEW.version, OLD.state, NEW.state USING ERRCODE = 'check_violation';\n    END IF;\n    RETURN NULL;\n", hash='9f5443750652f7949d9f25a56d212cf00aa7d032', operation='UPDATE', pgid='pgtrigger_run_moved_with_journal_82c8a', table='runs_agentrun', timing='DEFERRABLE INITIALLY DEFERRED', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='agentrun',
            trigger=pgtrigger.compiler.Trigger(name='run_only_grows', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW.fence_token < OLD.fence_token OR NEW.version < OLD.version\n            OR (NEW.state <> OLD.state AND NEW.version = OLD.version))', func="RAISE EXCEPTION 'run %: token and version only grow, and a new state needs a larger version', OLD.id USING ERRCODE = 'check_violation';", hash='3936657fb69926aa79763f3ed8810fc9b2878504', operation='UPDATE', pgid='pgtrigger_run_only_grows_c5ce4', table='runs_agentrun', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='controlrequest',
            trigger=pgtrigger.compiler.Trigger(name='request_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'request rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='9beef08fe38b009cd52cdf901f611649a1e06783', operation='UPDATE', pgid='pgtrigger_request_never_changes_1309d', table='runs_controlrequest', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='controlrequest',
            trigger=pgtrigger.compiler.Trigger(name='request_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'request rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='c5529367930cffae0a0684f67c0e57bba4be2796', operation='DELETE', pgid='pgtrigger_request_outlives_nothing_but_its_run_2dfde', table='runs_controlrequest', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='handoff',
            trigger=pgtrigger.compiler.Trigger(name='handoff_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'handoff rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='d5fd2ba252f28f24299b66e3b8f1214c92289846', operation='UPDATE', pgid='pgtrigger_handoff_never_changes_d8366', table='runs_handoff', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='handoff',
            trigger=pgtrigger.compiler.Trigger(name='handoff_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'handoff rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='ef2f83ffc3042d05df273f3a26f22cc25746e2a8', operation='DELETE', pgid='pgtrigger_handoff_outlives_nothing_but_its_run_c779a', table='runs_handoff', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='llmrequest',
            trigger=pgtrigger.compiler.Trigger(name='llm_request_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'llm_request rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='f58b4a06b07d091a9e00dd200272c28cc417222a', operation='UPDATE', pgid='pgtrigger_llm_request_never_changes_a8c17', table='runs_llmrequest', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='llmrequest',
            trigger=pgtrigger.compiler.Trigger(name='llm_request_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'llm_request rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='929c9f05974545ad08b2e811f581bb6f408a64d8', operation='DELETE', pgid='pgtrigger_llm_request_outlives_nothing_but_its_run_a2aaf', table='runs_llmrequest', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='question',
            trigger=pgtrigger.compiler.Trigger(name='question_keeps_what_was_asked', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW.id IS DISTINCT FROM OLD.id OR NEW.run_id IS DISTINCT FROM OLD.run_id OR NEW.step_id IS DISTINCT FROM OLD.step_id OR NEW.step_number IS DISTINCT FROM OLD.step_number OR NEW.text IS DISTINCT FROM OLD.text OR NEW.schema IS DISTINCT FROM OLD.schema OR NEW.groups IS DISTINCT FROM OLD.groups OR NEW.escalate_to IS DISTINCT FROM OLD.escalate_to OR NEW.asked_at IS DISTINCT FROM OLD.asked_at OR NEW.answer_by IS DISTINCT FROM OLD.answer_by)', func="RAISE EXCEPTION 'question %: what was asked cannot change', NEW.id USING ERRCODE = 'check_violation';", hash='f36421af3fa3da9b68f10c4178b9ac81d48d1e90', operation='UPDATE OF "id", "run_id", "step_id", "step_number", "text", "schema", "groups", "escalate_to", "asked_at", "answer_by"', pgid='pgtrigger_question_keeps_what_was_asked_fd166', table='runs_question', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='question',
            trigger=pgtrigger.compiler.Trigger(name='question_ends_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (OLD.status <> 'open' AND (NEW.status IS DISTINCT FROM OLD.status OR NEW.answer IS DISTINCT FROM OLD.answer OR NEW.answered_by IS DISTINCT FROM OLD.answered_by OR NEW.ended_at IS DISTINCT FROM OLD.ended_at OR NEW.event_id IS DISTINCT FROM OLD.event_id OR (NEW.answered_by_user_id IS NOT NULL AND NEW.answered_by_user_id IS DISTINCT FROM OLD.answered_by_user_id)))", func="RAISE EXCEPTION 'question %: it has ended, and what it came to cannot change', NEW.id USING ERRCODE = 'check_violation';", hash='b40284bef5d8a59fc89e4c3255a8a71f8a48b112', operation='UPDATE', pgid='pgtrigger_question_ends_once_a03da', table='runs_question', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='question',
            trigger=pgtrigger.compiler.Trigger(name='question_begins_open', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.status <> 'open')", func="RAISE EXCEPTION 'question %: it is asked before it ends', NEW.id USING ERRCODE = 'check_violation';", hash='c43c111611eeb0cefadeaa8991a749e35976f470', operation='INSERT', pgid='pgtrigger_question_begins_open_76c70', table='runs_question', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='tooloperation',
            trigger=pgtrigger.compiler.Trigger(name='operation_created_with_journal', sql=pgtrigger.compiler.UpsertTriggerSql(constraint='CONSTRAINT', declare='DECLARE expected text; edge record;', func="\n    expected := '';\n    FOR edge IN\n        SELECT from_state, to_state FROM runs_transition\n        WHERE run_id = NEW.run_id AND version = NEW.run_version\n          AND operation_id IS NOT DISTINCT FROM NEW.id\n        ORDER BY id\n    LOOP\n        IF edge.from_state <> expected THEN\n            RAISE EXCEPTION 'journal of run % version % leaves % where % was expected',\n                NEW.run_id, NEW.run_version, edge.from_state, expected USING ERRCODE = 'check_violation';\n        END IF;\n        expected := edge.to_state;\n    END LOOP;\n    IF expected <> NEW.status THEN\n        RAISE EXCEPTION 'run % version %: no journal row explains % to %',\n            NEW.run_id, NEW.run_version, '', NEW.status USING ERRCODE = 'check_violation';\n    END IF;\n    RETURN NULL;\n", hash='05eff4e2a93af8c50a98ff90b8a94a404eb52c8d', operation='INSERT', pgid='pgtrigger_operation_created_with_journal_43730', table='runs_tooloperation', timing='DEFERRABLE INITIALLY DEFERRED', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='tooloperation',
            trigger=pgtrigger.compiler.Trigger(name='operation_moved_with_journal', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.status IS DISTINCT FROM NEW.status)', constraint='CONSTRAINT', declare='DECLARE expected text; edge record;', func="\n    expected := OLD.status;\n    FOR edge IN\n        SELECT from_state, to_state FROM runs_transition\n        WHERE run_id = NEW.run_id AND version = NEW.run_version\n          AND operation_id IS NOT DISTINCT FROM NEW.id\n        ORDER BY id\n    LOOP\n        IF edge.from_state <> expected THEN\n            RAISE EXCEPTION 'journal of run % version % leaves % where % was expected',\n                NEW.run_id, NEW.run_version, edge.from_state, expected USING ERRCODE = 'check_violation';\n        END IF;\n        expected := edge.to_state;\n    END LOOP;\n    IF expected <> NEW.status THEN\n        RAISE EXCEPTION 'run % version %: no journal row explains % to %',\n            NEW.run_id, NEW.run_version, OLD.status, NEW.status USING ERRCODE = 'check_violation';\n    END IF;\n    RETURN NULL;\n", hash='f405a787e60005da8c2a9a5b89d994411890acf5', operation='UPDATE', pgid='pgtrigger_operation_moved_with_journal_795cd', table='runs_tooloperation', timing='DEFERRABLE INITIALLY DEFERRED', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='tooloperation',
            trigger=pgtrigger.compiler.Trigger(name='operation_keeps_identity', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW.id IS DISTINCT FROM OLD.id OR NEW.run_id IS DISTINCT FROM OLD.run_id OR NEW.step_id IS DISTINCT FROM OLD.step_id OR NEW.step_number IS DISTINCT FROM OLD.step_number OR NEW.ordinal IS DISTINCT FROM OLD.ordinal OR NEW.revision IS DISTINCT FROM OLD.revision OR NEW.tool IS DISTINCT FROM OLD.tool OR NEW.tool_version IS DISTINCT FROM OLD.tool_version OR NEW.arguments_version IS DISTINCT FROM OLD.arguments_version OR NEW.effect_type IS DISTINCT FROM OLD.effect_type OR NEW.provider IS DISTINCT FROM OLD.provider OR NEW.account IS DISTINCT FROM OLD.account OR NEW.arguments IS DISTINCT FROM OLD.arguments OR NEW.arguments_digest IS DISTINCT FROM OLD.arguments_digest OR NEW.sensitive IS DISTINCT FROM OLD.sensitive OR NEW.idempotency_key IS DISTINCT FROM OLD.idempotency_key)', func="RAISE EXCEPTION 'operation %: what it is cannot change', OLD.id USING ERRCODE = 'check_violation';", hash='72a0683780f6c4142a701c8220cff18e09e80986', operation='UPDATE OF "id", "run_id", "step_id", "step_number", "ordinal", "revision", "tool", "tool_version", "arguments_version", "effect_type", "provider", "account", "arguments", "arguments_digest", "sensitive", "idempotency_key"', pgid='pgtrigger_operation_keeps_identity_df2bd', table='runs_tooloperation', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='tooloperation',
            trigger=pgtrigger.compiler.Trigger(name='operation_token_only_grows', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW.fence_token < OLD.fence_token)', func="RAISE EXCEPTION 'operation %: its fencing token only grows', OLD.id USING ERRCODE = 'check_violation';", hash='909c230bda560e910020833e0ecd86ab2c65763e', operation='UPDATE OF "fence_token"', pgid='pgtrigger_operation_token_only_grows_8e840', table='runs_tooloperation', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='tooloperation',
            trigger=pgtrigger.compiler.Trigger(name='operation_sent_as_approved', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.policy_outcome = 'require_approval' AND (NEW.status = 'RUNNING' OR NEW.status = 'COMMITTED' AND NEW.effect_type = 'TRANSACTIONAL'))", constraint='CONSTRAINT', func="\n            -- A transactional call runs and commits in one statement.\n            IF NOT EXISTS (\n                SELECT 1 FROM runs_approval\n                WHERE id = NEW.approval_id AND operation_id = NEW.id\n                  AND status = 'approved' AND spent_at IS NOT NULL\n            ) THEN\n                RAISE EXCEPTION 'operation %: sent without a signature', NEW.id\n                    USING ERRCODE = 'check_violation';\n            END IF;\n            RETURN NULL;\n        ", hash='1f1b937e2f6adf19aeec653b43cfb64e039d84ff', operation='INSERT OR UPDATE', pgid='pgtrigger_operation_sent_as_approved_ef303', table='runs_tooloperation', timing='DEFERRABLE INITIALLY DEFERRED', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='toolobservation',
            trigger=pgtrigger.compiler.Trigger(name='observation_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'observation rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='0241df0d2cce7314a2dfe8a8b3768401cf1dd270', operation='UPDATE', pgid='pgtrigger_observation_never_changes_71fcf', table='runs_toolobservation', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='toolobservation',
            trigger=pgtrigger.compiler.Trigger(name='observation_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'observation rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='a82c1bb76c250a3578404d91e29a5c2088335f6f', operation='DELETE', pgid='pgtrigger_observation_outlives_nothing_but_its_run_8b01b', table='runs_toolobservation', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='incident',
            trigger=pgtrigger.compiler.Trigger(name='incident_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'incident rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='20906f19093c6e33096edb23982f561e5dfb2412', operation='UPDATE', pgid='pgtrigger_incident_never_changes_f64ea', table='runs_incident', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='incident',
            trigger=pgtrigger.compiler.Trigger(name='incident_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'incident rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='68c206621b8612fbf6c2c2087293fa9471de3a97', operation='DELETE', pgid='pgtrigger_incident_outlives_nothing_but_its_run_c67ab', table='runs_incident', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='approval',
            trigger=pgtrigger.compiler.Trigger(name='approval_keeps_what_was_signed', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW.id IS DISTINCT FROM OLD.id OR NEW.operation_id IS DISTINCT FROM OLD.operation_id OR NEW.run_id IS DISTINCT FROM OLD.run_id OR NEW.fingerprint IS DISTINCT FROM OLD.fingerprint OR NEW.covered IS DISTINCT FROM OLD.covered OR NEW.rule IS DISTINCT FROM OLD.rule OR NEW.asked_because IS DISTINCT FROM OLD.asked_because OR NEW.policy_version IS DISTINCT FROM OLD.policy_version OR NEW.resource_version IS DISTINCT FROM OLD.resource_version OR NEW.requester IS DISTINCT FROM OLD.requester OR NEW.groups IS DISTINCT FROM OLD.groups OR NEW.quorum IS DISTINCT FROM OLD.quorum OR NEW.escalate_to IS DISTINCT FROM OLD.escalate_to OR NEW.execute_within IS DISTINCT FROM OLD.execute_within OR NEW.requested_at IS DISTINCT FROM OLD.requested_at OR NEW.approve_by IS DISTINCT FROM OLD.approve_by)', func="RAISE EXCEPTION 'approval %: what was to be signed cannot change', OLD.id USING ERRCODE = 'check_violation';", hash='e5d23665a8f356067ce1b58519aec0dac9f513a2', operation='UPDATE OF "id", "operation_id", "run_id", "fingerprint", "covered", "rule", "asked_because", "policy_version", "resource_version", "requester", "groups", "quorum", "escalate_to", "execute_within", "requested_at", "approve_by"', pgid='pgtrigger_approval_keeps_what_was_signed_dd0c6', table='runs_approval', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='approval',
            trigger=pgtrigger.compiler.Trigger(name='approval_moves_forward', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.status <> OLD.status\n            AND (OLD.status || ' ' || NEW.status) NOT IN ('pending approved', 'pending denied', 'pending expired', 'pending cancelled', 'pending superseded', 'approved cancelled', 'approved superseded'))", func="RAISE EXCEPTION 'approval %: this verdict is not possible any more', OLD.id USING ERRCODE = 'check_violation';", hash='81516d697ee4f7f8d588abf801625b270879d293', operation='UPDATE OF "status"', pgid='pgtrigger_approval_moves_forward_a0785', table='runs_approval', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='approval',
            trigger=pgtrigger.compiler.Trigger(name='approval_begins_pending', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.status <> 'pending')", func="RAISE EXCEPTION 'approval %: it is asked for before it is given', NEW.id USING ERRCODE = 'check_violation';", hash='cb79e9f9671afe976e3cee74dd4a4b32ebe878b9', operation='INSERT', pgid='pgtrigger_approval_begins_pending_ca590', table='runs_approval', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='approval',
            trigger=pgtrigger.compiler.Trigger(name='approval_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n            IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                RAISE EXCEPTION 'approvals stay while run % exists', OLD.run_id\n                    USING ERRCODE = 'check_violation';\n            END IF;\n            RETURN OLD;\n        ", hash='ebbd7ac175d5ae4883f8e1c77dec7c8ae83b18a4', operation='DELETE', pgid='pgtrigger_approval_outlives_nothing_but_its_run_4e8b4', table='runs_approval', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='transition',
            trigger=pgtrigger.compiler.Trigger(name='transition_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'transition rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='b9f6b575b4993e26c56fb8cd091d167a4afba731', operation='UPDATE', pgid='pgtrigger_transition_never_changes_16ec4', table='runs_transition', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='transition',
            trigger=pgtrigger.compiler.Trigger(name='transition_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'transition rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='fc83abd7af097d8642ad570979e4af30f374199a', operation='DELETE', pgid='pgtrigger_transition_outlives_nothing_but_its_run_4bd5b', table='runs_transition', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='worker',
            trigger=pgtrigger.compiler.Trigger(name='worker_ends_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at)', func="RAISE EXCEPTION 'worker %: it has ended once', OLD.name USING ERRCODE = 'check_violation';", hash='f14415e286e9b992c1702652cb02c6998436d064', operation='UPDATE', pgid='pgtrigger_worker_ends_once_499da', table='runs_worker', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='checkpoint',
            trigger=pgtrigger.compiler.Trigger(name='checkpoint_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'checkpoint rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='d484a0eb20fcd339f1cce6f2d53aa1bb647b8f92', operation='UPDATE', pgid='pgtrigger_checkpoint_never_changes_bdcd7', table='runs_checkpoint', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='checkpoint',
            trigger=pgtrigger.compiler.Trigger(name='checkpoint_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'checkpoint rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='ea85ae4a1b2d03642885b3fbfcf0be67b614511d', operation='DELETE', pgid='pgtrigger_checkpoint_outlives_nothing_but_its_run_4e51c', table='runs_checkpoint', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='modeldecision',
            trigger=pgtrigger.compiler.Trigger(name='decision_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'decision rows are append-only (run %)', OLD.run_id USING ERRCODE = 'check_violation';", hash='b7290a71186edab0dc522365bad45bc00d0fd4c4', operation='UPDATE', pgid='pgtrigger_decision_never_changes_a98e8', table='runs_modeldecision', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='modeldecision',
            trigger=pgtrigger.compiler.Trigger(name='decision_outlives_nothing_but_its_run', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN\n                    RAISE EXCEPTION 'decision rows stay while run % exists', OLD.run_id\n                        USING ERRCODE = 'check_violation';\n                END IF;\n                RETURN OLD;\n            ", hash='9607fbb35222820e65fb7cc13e329cc83d81ce6e', operation='DELETE', pgid='pgtrigger_decision_outlives_nothing_but_its_run_bd75a', table='runs_modeldecision', when='BEFORE')),
        ),
        migrations.CreateModel(
            name='GatewayCall',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('call', 'A call of a tool'), ('finish', 'The run has reached its goal, or will not'), ('again', 'A known call of a run, under another key')], default='call', max_length=16)),
                ('scope', models.CharField(help_text='whose keys: a token, or a user', max_length=200)),
                ('key', models.CharField(max_length=255, null=True)),
                ('request_digest', models.CharField(max_length=64)),
                ('operation_id', runs.models.operations.OperationIdField(max_length=64, null=True)),
                ('tool', models.CharField(blank=True, max_length=100)),
                ('arguments', models.JSONField(help_text='until it is taken up; then they stand on its operation', null=True)),
                ('rationale', models.TextField(blank=True, help_text='why, in the words of whoever asked')),
                ('ends_run', models.BooleanField(db_default=False, help_text='the run was started for this call, and ends with it')),
                ('same_as', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs.gatewaycall')),
                ('created_by', models.CharField(max_length=100)),
                ('door', models.CharField(blank=True, db_default='', help_text='by which it came: api, mcp, command', max_length=8)),
                ('address', models.CharField(blank=True, db_default='', help_text='where it came from', max_length=64)),
                ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('answer_by', models.DateTimeField(help_text='until then whoever asked waits for the answer', null=True)),
                ('taken_at', models.DateTimeField(help_text='when its run decided to do it', null=True)),
                ('run', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='gateway_calls', to='runs.agentrun')),
            ],
            options={
                'verbose_name': 'gateway call',
                'indexes': [models.Index(condition=models.Q(('taken_at__isnull', True)), fields=['run', 'id'], name='call_waiting'), models.Index(fields=['run', '-id'], name='call_of_run')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('key__isnull', False)), fields=('scope', 'key'), name='call_unique_key'), models.UniqueConstraint(condition=models.Q(('operation_id__isnull', False)), fields=('operation_id',), name='call_unique_operation'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'finish'), ('operation_id__isnull', True)), models.Q(('key__isnull', False), ('kind', 'again'), ('operation_id__isnull', True), ('same_as__isnull', False), ('taken_at__isnull', False)), models.Q(('key__isnull', False), ('kind', 'call'), ('operation_id__isnull', False), models.Q(('tool', ''), _negated=True)), _connector='OR'), name='call_has_its_names')],
            },
        ),
        migrations.CreateModel(
            name='EffectAudit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tool', models.CharField(max_length=100)),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('effects', models.IntegerField(default=0)),
                ('matched', models.IntegerField(default=0)),
                ('duplicates', models.IntegerField(default=0)),
                ('late', models.IntegerField(default=0)),
                ('unaccounted', models.IntegerField(default=0)),
                ('missing', models.IntegerField(default=0)),
                ('findings', models.JSONField(default=list, help_text='the first ones that are not matched: what, and which reference')),
                ('error', models.TextField(blank=True, help_text='why the provider could not be asked')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'effect audit',
            },
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('starts_at', models.DateTimeField()),
                ('seconds', models.IntegerField(help_text='how long the slice is')),
                ('agent', models.CharField(max_length=100)),
                ('agent_version', models.CharField(max_length=64)),
                ('tool', models.CharField(blank=True, help_text='empty: not of a tool', max_length=100)),
                ('measure', models.CharField(max_length=48)),
                ('le', models.FloatField(default=0)),
                ('count', models.BigIntegerField()),
                ('total', models.DecimalField(decimal_places=6, default=0, max_digits=24)),
            ],
            options={'verbose_name': 'rollup', 'verbose_name_plural': 'service levels'},
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('decided_at__isnull', False)), fields=['decided_at'], name='approval_decided'),
        ),
        migrations.AddIndex(
            model_name='llmrequest',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['at'], name='llm_request_by_time'),
        ),
        migrations.AddIndex(
            model_name='stepattempt',
            index=models.Index(condition=models.Q(('outcome', 'lost')), fields=['ended_at'], name='attempt_lost'),
        ),
        migrations.AddIndex(
            model_name='transition',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['at'], name='transition_by_time'),
        ),
        migrations.AddIndex(
            model_name='transition',
            index=models.Index(condition=models.Q(('from_state__in', [runs.state.RunState['WAITING_FOR_APPROVAL'], runs.state.RunState['WAITING_FOR_RESOLUTION']]), ('operation__isnull', True)), fields=['run', 'version'], name='transition_from_person'),
        ),
        migrations.AddIndex(
            model_name='transition',
            index=models.Index(condition=models.Q(('operation__isnull', False), ('to_state', runs.state.OperationStatus['UNKNOWN'])), fields=['operation', 'id'], name='transition_to_unknown'),
        ),
        migrations.AddIndex(
            model_name='effectaudit',
            index=models.Index(fields=['tool', '-id'], name='effect_audit_of_tool'),
        ),
        migrations.AddIndex(
            model_name='effectaudit',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['at'], name='effect_audit_by_time'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='effectaudit',
            trigger=pgtrigger.compiler.Trigger(name='effect_audit_never_changes', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'effect_audit rows are never changed (row %)', OLD.id USING ERRCODE = 'check_violation';", hash='147de34bb7afc82ce046df0d8dbfa58f56f7c927', operation='UPDATE', pgid='pgtrigger_effect_audit_never_changes_449a9', table='runs_effectaudit', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='rollup',
            constraint=models.UniqueConstraint(fields=('seconds', 'starts_at', 'measure', 'agent', 'agent_version', 'tool', 'le'), name='rollup_once'),
        ),
        migrations.AddIndex(
            model_name='gatewaycall',
            index=models.Index(condition=models.Q(('kind', 'again')), fields=['received_at'], name='call_again'),
        ),
        migrations.AddIndex(
            model_name='question',
            index=models.Index(condition=models.Q(('status', 'answered')), fields=['ended_at'], name='question_answered'),
        ),
    ]
