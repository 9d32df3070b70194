"""Every address of the web process."""

from csp.decorators import csp_update
from django.contrib import admin
from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from agentops import (
    health,
    openapi,  # noqa: F401  describes tokens in the schema
    problems,
)
from agentops.metrics.view import metrics

admin.autodiscover()

# Its script is a file as well, and its styles draw their icons from data in themselves.
docs = csp_update({"img-src": ["data:"]})(SpectacularSwaggerSplitView.as_view(url_name="schema"))

urlpatterns = [
    path("admin/", admin.site.urls),
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("api/v1/", include("runs.urls")),
    path("api/v1/", include("approvals.urls")),
    path("api/v1/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/v1/docs/", docs, name="docs"),
    # Last: what is below /api/ and nowhere above is a problem document too.
    re_path(r"^api/", problems.no_such_address),
]

handler400 = problems.handler400
handler403 = problems.handler403
handler404 = problems.handler404
handler500 = problems.handler500
