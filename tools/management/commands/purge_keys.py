"""`purge_keys`: clean up what receivers of calls no longer need."""

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, ProgrammingError

from tools import retention
from tools.redaction import bound_text


class Command(BaseCommand):
    help = (
        "Drop the results of idempotency keys whose retention is over, and forget keys and "
        "fenced resources that nobody has used for long. Keys that are in flight or unknown stay."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
        parser.add_argument("--dry-run", action="store_true", help="count only")

    def handle(self, *args: Any, **options: Any) -> None:
        """Clean, or count; a database that is away or empty becomes a CommandError."""
        dry_run = options["dry_run"]
        try:
            purged = retention.count_due() if dry_run else retention.run()
        except (OperationalError, InterfaceError, ProgrammingError) as error:
            raise CommandError(
                "database: is the stack up, DATABASE_URL right, and `manage.py migrate` done? "
                f"({bound_text(str(error).strip(), 200)})"
            ) from error
        if options["as_json"]:
            self.stdout.write(json.dumps({"dry_run": dry_run, **asdict(purged)}))
            return
        drop, forget = ("Would drop", "would forget") if dry_run else ("Dropped", "forgot")
        self.stdout.write(
            f"{drop} {purged.results_dropped} results; {forget} {purged.keys_forgotten} keys and "
            f"{purged.resources_forgotten} fenced resources. "
            f"{purged.keys_open} keys are in flight or unknown and stay."
        )
