"""`list_questions`: what agents ask people, and what was answered."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.management.base import find_user
from approvals.question_inbox import find_questions, read_page
from approvals.question_shapes import present_questions
from approvals.question_tables import questions_table
from runs.access import READ
from runs.management.base import KernelCommand, add_limit, checked_limit


class Command(KernelCommand):
    help = "List questions to people, newest first."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--status", help="only questions in this status, such as open")
        parser.add_argument("--run", help="only questions of this run")
        parser.add_argument("--group", help="only what the members of this group are asked")
        parser.add_argument(
            "--mine-as", metavar="USERNAME", help="only what this user may answer now"
        )
        add_limit(parser, default=50, of="questions")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        mine = options["mine_as"]
        found = find_questions(
            status=options["status"],
            run=options["run"],
            group=options["group"],
            mine=find_user(mine, option="--mine-as") if mine is not None else None,
        )
        page = read_page(found, cursor=None, size=checked_limit(options["limit"]))
        questions = present_questions(page.items)
        self.show(questions, questions_table(questions))
        if not questions:
            self.say("No question matches.")
        if page.next:
            self.say(f"There are more; these are the newest {len(questions)}.")
