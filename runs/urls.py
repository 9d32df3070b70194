"""Addresses below `/api/v1/` that this app answers. Ids are read by the views."""

from django.urls import path

from runs import api, api_control, api_corrections, api_gateway, api_schedules, api_slo

urlpatterns = [
    path("runs/", api.RunsView.as_view(), name="runs"),
    path("runs/<str:run_id>/", api.RunView.as_view(), name="run"),
    path("runs/<str:run_id>/timeline/", api.TimelineView.as_view(), name="run-timeline"),
    path("runs/<str:run_id>/cancel/", api_control.CancelView.as_view(), name="run-cancel"),
    path("runs/<str:run_id>/pause/", api_control.PauseView.as_view(), name="run-pause"),
    path("runs/<str:run_id>/resume/", api_control.ResumeView.as_view(), name="run-resume"),
    path("runs/<str:run_id>/retry/", api_control.RetryView.as_view(), name="run-retry"),
    path(
        "runs/<str:run_id>/compensate/",
        api_control.CompensateView.as_view(),
        name="run-compensate",
    ),
    path("runs/<str:run_id>/fork/", api_control.ForkView.as_view(), name="run-fork"),
    path("runs/<str:run_id>/signals/", api_control.SignalsView.as_view(), name="run-signals"),
    path("runs/<str:run_id>/finish/", api_gateway.FinishView.as_view(), name="run-finish"),
    path("operations/", api_gateway.OperationsView.as_view(), name="operations"),
    path("operations/<str:operation_id>/", api_gateway.OperationView.as_view(), name="operation"),
    path(
        "operations/<str:operation_id>/resolve/",
        api.ResolveView.as_view(),
        name="operation-resolve",
    ),
    path(
        "operations/<str:operation_id>/correct/",
        api_corrections.CorrectView.as_view(),
        name="operation-correct",
    ),
    path("schedules/", api_schedules.SchedulesView.as_view(), name="schedules"),
    path("schedules/<str:name>/", api_schedules.ScheduleView.as_view(), name="schedule"),
    path("agents/", api.AgentsView.as_view(), name="agents"),
    path("slo/", api_slo.SloView.as_view(), name="slo"),
    path("tools/", api.ToolsView.as_view(), name="tools"),
]
