"""Addresses below `/api/v1/` that this app answers. Ids are read by the views."""

from django.urls import path

from approvals import api, api_questions

urlpatterns = [
    path("approvals/", api.ApprovalsView.as_view(), name="approvals"),
    path("approvals/<str:approval_id>/", api.ApprovalView.as_view(), name="approval"),
    path(
        "approvals/<str:approval_id>/verdict/", api.VerdictView.as_view(), name="approval-verdict"
    ),
    path(
        "approvals/<str:approval_id>/propose/", api.ProposeView.as_view(), name="approval-propose"
    ),
    path("questions/", api_questions.QuestionsView.as_view(), name="questions"),
    path("questions/<str:question_id>/", api_questions.QuestionView.as_view(), name="question"),
    path(
        "questions/<str:question_id>/answer/",
        api_questions.AnswerView.as_view(),
        name="question-answer",
    ),
]
