"""The REST front door of questions to people.

Guarantees: each view parses, calls one command or query, and presents; each names the scope
of each of its methods. The person who answers is the token's user and nobody else.

Does not word errors: what is raised here becomes a problem document in `agentops`.
"""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.question_inbox import find_questions, get_question, read_page
from approvals.question_shapes import (
    GiveAnswer,
    Question,
    QuestionPage,
    present_question,
    present_questions,
)
from approvals.questions import answer_question
from runs.access import QUESTIONS_ANSWER, READ
from runs.models import Question as QuestionRow
from runs.paging import PAGE_SIZE
from runs.requests import Query, read_body
from runs.rest import CURSOR, SIZE, KernelView, answer, page_links, problems

_QUESTION_ID = OpenApiParameter("question_id", OpenApiTypes.UUID, OpenApiParameter.PATH)


class QuestionsView(KernelView):
    """Look for questions."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="questions_list",
        parameters=[
            OpenApiParameter("status", str, enum=[str(one) for one in QuestionRow.Status]),
            OpenApiParameter("run", OpenApiTypes.UUID),
            OpenApiParameter("group", str, description="only what its members are asked"),
            OpenApiParameter("mine", bool, description="only what the token's user may answer now"),
            CURSOR,
            SIZE,
        ],
        responses={200: QuestionPage, **problems(400)},
    )
    def get(self, request: Request) -> Response:
        """List questions, newest first."""
        query = Query(request, known=("status", "run", "group", "mine"))
        found = find_questions(
            status=query.text("status"),
            run=query.text("run"),
            group=query.text("group"),
            mine=request.user if query.truth("mine") else None,
        )
        page = read_page(found, cursor=query.text("cursor"), size=query.page_size(PAGE_SIZE))
        results = present_questions(page.items)
        return answer(QuestionPage(**page_links(request, page), results=results))


class QuestionView(KernelView):
    """One question."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="questions_retrieve",
        parameters=[_QUESTION_ID],
        responses={200: Question, **problems(404)},
    )
    def get(self, request: Request, question_id: str) -> Response:
        """Show a question with the schema of its answer."""
        Query(request, known=())
        return answer(present_question(get_question(question_id)))


class AnswerView(KernelView):
    """Answer."""

    scopes = {"POST": QUESTIONS_ANSWER}

    @extend_schema(
        operation_id="questions_answer",
        parameters=[_QUESTION_ID],
        request=GiveAnswer,
        responses={200: Question, **problems(400, 404, 409, 413, 415)},
    )
    def post(self, request: Request, question_id: str) -> Response:
        """Answer once; the run goes on. The same answer under its event id: the same again."""
        said = read_body(request.data, GiveAnswer)
        heard = answer_question(
            actor=self.actor(),
            question_id=question_id,
            answer=said.answer,
            event_id=said.event_id,
        )
        response = answer(present_question(get_question(heard.question.id)))
        if heard.replayed:
            response["Idempotent-Replayed"] = "true"
        return response
