"""The admin's pages are loaded for whoever serves or checks them, and for nobody else."""

import os
import subprocess
import sys
import textwrap

from django.contrib import admin

import agentops.urls  # noqa: F401  finds the pages
from tests.processes import ROOT


def test_whoever_serves_has_the_pages_of_every_app() -> None:
    apps = {model._meta.app_label for model in admin.site._registry}
    assert apps == {"agentops", "auth", "runs", "tools"}
    # Its models are of another app.
    assert "approvals.admin" in sys.modules


def test_a_worker_loads_no_page_and_a_check_loads_all() -> None:
    program = """
        import gc, sys
        import agentops.celery, django
        from django.core.checks import Tags, run_checks

        django.setup()
        agentops.celery.app.loader.import_default_modules()
        agentops.celery._require_sound()
        print(gc.isenabled(), gc.get_freeze_count() > 0)
        print([name for name in sys.modules if ".admin." in name and name.startswith("runs")])
        print([name for name in ("agentops.urls", "rest_framework.views") if name in sys.modules])
        print(run_checks(tags=[Tags.admin]), "runs.admin" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["True True", "[]", "[]", "[] True"], done.stderr
