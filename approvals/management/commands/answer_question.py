"""`answer_question`: a person's answer to what an agent asks."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.management.base import find_user
from approvals.question_inbox import get_question
from approvals.question_shapes import present_question
from approvals.question_tables import say_status
from approvals.questions import answer_question
from runs.access import Actor
from runs.management.base import KernelCommand, as_json
from runs.models import NAME
from runs.requests import read_json_option


class Command(KernelCommand):
    help = "Answer a question as the user that --as names; list_questions --json shows its schema."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("question", metavar="ID", help="as list_questions shows it")
        parser.add_argument(
            "--answer", required=True, metavar="JSON|@FILE", help="a JSON value, such as '\"yes\"'"
        )
        parser.add_argument(
            "--as", required=True, dest="username", metavar="USERNAME", help="who answers"
        )
        parser.add_argument(
            "--event-id", help="names the answer: heard once however often it is sent"
        )

    def act(self, options: dict[str, Any]) -> None:
        user = find_user(options["username"], option="--as")
        heard = answer_question(
            actor=Actor(name=user.get_username()[:NAME], scopes=self.actor.scopes, user_id=user.pk),
            question_id=options["question"],
            answer=read_json_option(options["answer"], option="--answer"),
            event_id=options["event_id"],
        )
        question = present_question(get_question(heard.question.id))
        if self.as_json:
            self.show_json(as_json(question))
            return
        again = " It had been heard before." if heard.replayed else ""
        self.say(f"Question {question.id} is {say_status(question)}.{again}")
