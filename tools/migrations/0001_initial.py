"""The first schema of this app: policies, and what a receiver of calls keeps."""

import datetime
import django.db.models.functions.datetime
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='FencedResource',
            fields=[
                ('resource', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('token', models.BigIntegerField()),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='IdempotencyKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(max_length=255)),
                ('key_digest', models.CharField(help_text='of the scope and the key', max_length=64)),
                ('arguments_digest', models.CharField(max_length=64)),
                ('status', models.CharField(choices=[('RUNNING', 'Being carried out, or its process died at it'), ('UNKNOWN', 'May or may not have taken effect'), ('FINISHED', 'Took effect; the result is kept'), ('REJECTED', 'Refused; the reason is kept'), ('EXPIRED', 'Settled long ago; only the key is remembered')], max_length=16)),
                ('attempt', models.IntegerField(default=1, help_text='one more each time an earlier one was found not executed')),
                ('result', models.TextField(null=True)),
                ('reason', models.TextField(blank=True, help_text='why it was rejected, or is unknown')),
                ('evidence', models.TextField(blank=True, help_text='what a person settled it by')),
                ('late_results', models.IntegerField(default=0, help_text='executions that ended after a later one had begun')),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('unknown_since', models.DateTimeField(null=True)),
                ('settled_at', models.DateTimeField(null=True)),
                ('keep_until', models.DateTimeField(help_text="end of the result's retention", null=True)),
                ('remember_until', models.DateTimeField(help_text='moved on by every sighting', null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('keep_until__isnull', False)), fields=['keep_until'], name='idempotency_key_kept'), models.Index(condition=models.Q(('remember_until__isnull', False)), fields=['remember_until'], name='idempotency_key_remembered'), models.Index(condition=models.Q(('remember_until__isnull', True)), fields=['started_at'], name='idempotency_key_open')],
                'constraints': [models.UniqueConstraint(fields=('key_digest',), name='idempotency_key_is_unique'), models.CheckConstraint(condition=models.Q(models.Q(('keep_until__isnull', True), ('remember_until__isnull', True), ('settled_at__isnull', True), ('status__in', ('RUNNING', 'UNKNOWN'))), models.Q(('remember_until__isnull', False), ('settled_at__isnull', False), models.Q(('status__in', ('RUNNING', 'UNKNOWN')), _negated=True)), _connector='OR'), name='idempotency_key_open_is_never_cleaned')],
            },
        ),
        migrations.CreateModel(
            name='ToolPolicy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=160)),
                ('version', models.IntegerField()),
                ('tool', models.CharField(blank=True, max_length=100)),
                ('provider', models.CharField(blank=True, max_length=100)),
                ('agent', models.CharField(blank=True, max_length=100)),
                ('when', models.TextField(default='true', help_text='CEL; see write-a-policy.md')),
                ('outcome', models.CharField(choices=[('allow', 'Allow'), ('require_approval', 'Require approval'), ('refuse', 'Refuse'), ('stop', 'Stop sending')], max_length=16)),
                ('groups', models.JSONField(blank=True, default=list, help_text='each must sign')),
                ('quorum', models.IntegerField(default=1, help_text='distinct people who must sign')),
                ('approve_by', models.DurationField(default=datetime.timedelta(days=1))),
                ('execute_by', models.DurationField(default=datetime.timedelta(seconds=3600))),
                ('escalate_to', models.JSONField(blank=True, default=list)),
                ('escalate_after', models.DurationField(blank=True, null=True)),
                ('remind_after', models.DurationField(blank=True, null=True)),
                ('window_seconds', models.IntegerField(blank=True, null=True)),
                ('window_by', models.CharField(choices=[('agent', 'Calls of the same agent'), ('requester', 'Calls for the same requester'), ('all', 'All calls')], default='agent', max_length=16)),
                ('window_money', models.CharField(blank=True, max_length=100)),
                ('active', models.BooleanField(default=True, help_text='false once retired, or lifted')),
                ('author', models.CharField(max_length=100)),
                ('reason', models.TextField(help_text='why this version was made')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name_plural': 'tool policies',
                'permissions': [('edit_policies', 'Can edit policies and stop sending')],
                'constraints': [models.UniqueConstraint(fields=('name', 'version'), name='policy_version_is_unique'), models.CheckConstraint(condition=models.Q(models.Q(('author', ''), _negated=True), models.Q(('reason', ''), _negated=True)), name='policy_has_author_and_reason'), models.CheckConstraint(condition=models.Q(('outcome__in', ['allow', 'require_approval', 'refuse', 'stop'])), name='policy_outcome_is_known'), models.CheckConstraint(condition=models.Q(('approve_by__gt', datetime.timedelta(0)), ('execute_by__gt', datetime.timedelta(0)), ('quorum__gte', 1)), name='policy_can_be_satisfied'), models.CheckConstraint(condition=models.Q(('window_seconds__isnull', True), models.Q(('window_seconds__gte', 1), ('window_seconds__lte', 86400.0)), _connector='OR'), name='policy_window_is_bounded'), models.CheckConstraint(condition=models.Q(('window_by__in', ['agent', 'requester', 'all'])), name='policy_counts_by_a_known_word'), models.CheckConstraint(condition=models.Q(models.Q(('outcome', 'stop'), _negated=True), models.Q(('agent', ''), ('when', 'true'), ('window_seconds__isnull', True), models.Q(('tool', ''), ('provider', ''), _connector='OR')), _connector='OR'), name='policy_stop_has_no_condition')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='toolpolicy',
            trigger=pgtrigger.compiler.Trigger(name='policy_writers_take_turns', sql=pgtrigger.compiler.UpsertTriggerSql(func='PERFORM pg_advisory_xact_lock(7054113820551004); RETURN NULL;', hash='e7cb94099e4addc61ddffae7ce280c07033c94ba', level='STATEMENT', operation='INSERT', pgid='pgtrigger_policy_writers_take_turns_cb4a5', table='tools_toolpolicy', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='toolpolicy',
            trigger=pgtrigger.compiler.Trigger(name='policy_versions_have_no_gap', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE newest int;', func="\n            SELECT version INTO newest FROM tools_toolpolicy\n            WHERE name = NEW.name ORDER BY version DESC LIMIT 1;\n            IF NEW.version <> coalesce(newest, 0) + 1 THEN\n                RAISE EXCEPTION 'policy %: version % does not follow %',\n                    NEW.name, NEW.version, coalesce(newest, 0) USING ERRCODE = 'unique_violation';\n            END IF;\n            RETURN NEW;\n        ", hash='af368e275c63295196ad0e86176b55d1f7653dd7', operation='INSERT', pgid='pgtrigger_policy_versions_have_no_gap_862a5', table='tools_toolpolicy', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='toolpolicy',
            trigger=pgtrigger.compiler.Trigger(name='policy_versions_stay', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n            RAISE EXCEPTION 'policy % version %: versions are append-only; save a new one',\n                OLD.name, OLD.version USING ERRCODE = 'check_violation';\n        ", hash='ec06b84b6ac8a1dc58778777249c7279f5d98218', operation='UPDATE OR DELETE', pgid='pgtrigger_policy_versions_stay_73470', table='tools_toolpolicy', when='BEFORE')),
        ),
    ]
