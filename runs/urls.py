"""Addresses below `/api/v1/` that this app answers. Ids are read by the views."""

from django.urls import path

from runs import api

urlpatterns = [
    path("runs/", api.RunsView.as_view(), name="runs"),
    path("runs/<str:run_id>/", api.RunView.as_view(), name="run"),
    path("runs/<str:run_id>/timeline/", api.TimelineView.as_view(), name="run-timeline"),
    path("runs/<str:run_id>/cancel/", api.CancelView.as_view(), name="run-cancel"),
    path("runs/<str:run_id>/resume/", api.ResumeView.as_view(), name="run-resume"),
    path("operations/", api.OperationsView.as_view(), name="operations"),
    path("operations/<str:operation_id>/", api.OperationView.as_view(), name="operation"),
    path(
        "operations/<str:operation_id>/resolve/",
        api.ResolveView.as_view(),
        name="operation-resolve",
    ),
    path("agents/", api.AgentsView.as_view(), name="agents"),
    path("tools/", api.ToolsView.as_view(), name="tools"),
]
