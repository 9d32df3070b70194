"""Settings. The environment is read here and nowhere else.

Given nothing, everything runs on servers that the project starts itself below
`AGENTOPS_DATA_DIR`. `agentops/checks.py` refuses unknown `AGENTOPS_…` names and
unsafe values when the project starts.
"""

import gc
import os
import secrets
import sys
from datetime import timedelta
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

from csp.constants import NONE, SELF, UNSAFE_EVAL
from django.templatetags.static import static
from psycopg.conninfo import conninfo_to_dict

from agentops.embedded.urls import broker_url, database_url
from agentops.logs import logging_config
from agentops.telemetry.checks import is_asked_for

# What is loaded from here on stays. The collector, which would go through it again and again, goes
# on when the apps are ready (`apps.py`).
gc.disable()

BASE_DIR = Path(__file__).resolve().parent.parent


def _env(name: str, default: str) -> str:
    return os.environ.get(name, "").strip() or default


def _number(name: str, default: float) -> float:
    """A number from the environment; a value that is none is kept for the system check."""
    try:
        given = float(_env(name, str(default)))
    except ValueError:
        return default
    return given if isfinite(given) else default


AGENTOPS_DATA_DIR = Path(_env("AGENTOPS_DATA_DIR", str(BASE_DIR / ".agentops"))).absolute()
AGENTOPS_APPS = [name.strip() for name in _env("AGENTOPS_APPS", "").split(",") if name.strip()]
# A file that names MCP servers whose tools agents may call.
AGENTOPS_MCP_SERVERS = (
    Path(_env("AGENTOPS_MCP_SERVERS", "")).absolute() if _env("AGENTOPS_MCP_SERVERS", "") else None
)
# For agents that name no llm themselves.
AGENTOPS_LLM = _env("AGENTOPS_LLM", "")
AGENTOPS_LEASE_SECONDS = _number("AGENTOPS_LEASE_SECONDS", 30.0)
AGENTOPS_SWEEP_SECONDS = _number("AGENTOPS_SWEEP_SECONDS", 1.0)
AGENTOPS_WORKER_CONCURRENCY = int(_number("AGENTOPS_WORKER_CONCURRENCY", 8))
# How many calls of other people's agents each web process carries out itself; 0 leaves all of
# them to the workers.
AGENTOPS_GATEWAY_CONCURRENCY = int(_number("AGENTOPS_GATEWAY_CONCURRENCY", 16))
# How many requests a minute each web process lets one API token make; 0 does not count.
AGENTOPS_RATE_PER_MINUTE = int(_number("AGENTOPS_RATE_PER_MINUTE", 1200))
AGENTOPS_PAYLOAD_BYTES = 256 * 1024
# Lines of one JSON object, or for people.
AGENTOPS_LOG_FORMAT = _env("AGENTOPS_LOG_FORMAT", "console" if sys.stderr.isatty() else "json")
LOGGING = logging_config(
    form=AGENTOPS_LOG_FORMAT.lower(), level=_env("AGENTOPS_LOG_LEVEL", "info"), apps=AGENTOPS_APPS
)
# The rest of the standard OTEL_… variables are the SDK's own to read.
OTEL_IS_ON = is_asked_for(os.environ)
PORT = int(_number("PORT", 8000))
FLOWER_PORT = int(_number("FLOWER_PORT", 5555))

# Notifications: where links lead, who hears of what happens, and how e-mail leaves.
AGENTOPS_BASE_URL = _env("AGENTOPS_BASE_URL", f"http://127.0.0.1:{PORT}").rstrip("/")
AGENTOPS_WEBHOOK_URLS = list(
    dict.fromkeys(
        url.strip() for url in _env("AGENTOPS_WEBHOOK_URLS", "").split(",") if url.strip()
    )
)
AGENTOPS_WEBHOOK_SECRET = _env("AGENTOPS_WEBHOOK_SECRET", "")
AGENTOPS_EMAIL_HOST = _env("AGENTOPS_EMAIL_HOST", "")
AGENTOPS_EMAIL_TLS = _env("AGENTOPS_EMAIL_TLS", "starttls").lower()
AGENTOPS_EMAIL_PORT = int(
    _number("AGENTOPS_EMAIL_PORT", {"ssl": 465, "off": 25}.get(AGENTOPS_EMAIL_TLS, 587))
)
AGENTOPS_EMAIL_USER = _env("AGENTOPS_EMAIL_USER", "")
AGENTOPS_EMAIL_PASSWORD = _env("AGENTOPS_EMAIL_PASSWORD", "")
AGENTOPS_EMAIL_FROM = _env("AGENTOPS_EMAIL_FROM", "")


def _is_importable(app: str) -> bool:
    """Whether Django could load an app of this name, given as a module or as its config class."""
    for name in (app, app.rpartition(".")[0]):
        try:
            if name and find_spec(name) is not None:
                return True
        except (ImportError, ValueError):
            continue
    return False


DEBUG = _env("AGENTOPS_DEBUG", "0").lower() in {"1", "true", "yes"}
# Without one, sessions end with the process: fine for a trial, refused by `check --deploy`.
SECRET_KEY = _env("AGENTOPS_SECRET_KEY", "") or secrets.token_urlsafe(48)
ALLOWED_HOSTS = [
    name.strip()
    for name in _env("AGENTOPS_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")
    if name.strip()
]

if "" not in sys.path:
    # Your apps are importable from the working directory, whichever program was started.
    sys.path.insert(0, os.getcwd())

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "agentops.admin_pages.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "pgtrigger",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "tools",
    "runs",
    "approvals",
    "agentops",
    # One that cannot be imported is reported by a system check, so that `doctor` can say so.
    *filter(_is_importable, AGENTOPS_APPS),
]

MIDDLEWARE = [
    "agentops.telemetry.serving.TracingMiddleware",
    "django.middleware.security.SecurityMiddleware",
    # Before the static files, so that what is opened among them obeys as well.
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    # Last: what stands behind it would write before there is an entry.
    "agentops.audit.AuditMiddleware",
]

ROOT_URLCONF = "agentops.urls"
ASGI_APPLICATION = "agentops.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# -- PostgreSQL ---------------------------------------------------------------

DATABASE_URL = _env("DATABASE_URL", "") or database_url(AGENTOPS_DATA_DIR)


def _database(url: str) -> dict[str, Any]:
    """Django's form of a libpq URL, read by libpq's own parser."""
    given = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    named = {
        "NAME": given.pop("dbname", "agentops"),
        "USER": given.pop("user", ""),
        "PASSWORD": given.pop("password", ""),
        "HOST": given.pop("host", ""),
        "PORT": given.pop("port", ""),
    }
    session = {
        "statement_timeout": "10s",
        "lock_timeout": "3s",
        "idle_in_transaction_session_timeout": "15s",
        # Statements here are short, also where the planner fears that they are not.
        "jit": "off",
    }
    options = " ".join(f"-c {name}={value}" for name, value in session.items())
    return {
        "ENGINE": "django.db.backends.postgresql",
        **named,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            **given,
            "options": f"{given.get('options', '')} {options}".strip(),
            "pool": {
                "min_size": 1,
                "max_size": max(AGENTOPS_WORKER_CONCURRENCY, AGENTOPS_GATEWAY_CONCURRENCY) + 8,
                "timeout": 10,
            },
            # The commit door sends the same few statements again and again.
            "prepare_threshold": 3,
        },
    }


DATABASES = {"default": _database(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- Celery: dates are rows, so no eta, countdown or retry is ever used --------

CELERY_BROKER_URL = _env("CELERY_BROKER_URL", "") or broker_url(AGENTOPS_DATA_DIR)
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_ACCEPT_CONTENT = ["json"]
# A message that says that a hint was sent would double what a hint costs.
CELERY_TASK_SEND_SENT_EVENT = False
CELERY_WORKER_SEND_TASK_EVENTS = True
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = AGENTOPS_WORKER_CONCURRENCY
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 10
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_TIMEOUT = 2
CELERY_TIMEZONE = "UTC"
# A hint that cannot leave at once is not worth waiting for: the sweep finds the row.
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {"max_retries": 0}
if CELERY_BROKER_URL.startswith(("redis", "rediss", "valkey")):
    CELERY_BROKER_TRANSPORT_OPTIONS |= {
        "visibility_timeout": 900,
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 1,
        "socket_connect_timeout": 2,
        "health_check_interval": 25,
    }
    # Redis only: with it RabbitMQ would refuse the consumer.
    CELERY_WORKER_DISABLE_PREFETCH = True

SWEEP_EVERY = timedelta(seconds=AGENTOPS_SWEEP_SECONDS)
CELERY_BEAT_SCHEDULE = {
    "sweep-due-runs": {
        "task": "runs.sweep_due_runs",
        "schedule": SWEEP_EVERY,
        # A sweep that waited longer than its period is already replaced by the next one.
        "options": {"expires": AGENTOPS_SWEEP_SECONDS},
    },
    "sweep-approvals": {
        "task": "approvals.sweep_approvals",
        "schedule": SWEEP_EVERY,
        "options": {"expires": AGENTOPS_SWEEP_SECONDS},
    },
    "start-scheduled-runs": {
        "task": "runs.start_scheduled_runs",
        "schedule": SWEEP_EVERY,
        "options": {"expires": AGENTOPS_SWEEP_SECONDS},
    },
    "send-notifications": {
        "task": "agentops.send_notifications",
        "schedule": timedelta(seconds=2),
        "options": {"expires": 2},
    },
    "audit-effects": {
        "task": "runs.audit_effects",
        "schedule": timedelta(hours=1),
        "options": {"expires": 3600},
    },
    "find-unsigned": {
        "task": "runs.find_unsigned",
        "schedule": timedelta(hours=1),
        "options": {"expires": 3600},
    },
    "roll-up": {
        "task": "runs.roll_up",
        "schedule": timedelta(seconds=30),
        "options": {"expires": 30},
    },
    "purge-keys": {
        "task": "tools.purge_keys",
        "schedule": timedelta(hours=1),
        "options": {"expires": 3600},
    },
}

# -- REST ---------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["agentops.access.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["agentops.access.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "agentops.problems.exception_handler",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "agentops",
    "DESCRIPTION": "Durable runs of agents whose tools change the outside world.",
    "VERSION": "1",
    # 3.1 has null as JSON schema has it; 3.0 has no way to say what an input may be.
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

# -- Pages --------------------------------------------------------------------

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
# Found in the installed apps when the web process starts: nothing to collect.
WHITENOISE_USE_FINDERS = True
LOGIN_URL = "admin:login"
X_FRAME_OPTIONS = "DENY"
# What a page may load and run (docs/decisions/0018): files of this server, nothing inline. The
# theme's scripts compile the expressions in its own attributes, which is what eval is for.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, UNSAFE_EVAL],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "agentops",
    "SITE_HEADER": "agentops",
    "SITE_SYMBOL": "conversion_path",
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "agentops.desk.show_desk",
    "SIDEBAR": {"navigation": "agentops.sidebar.navigation"},
    # The theme writes its colours into every page, which the policy refuses; ours are a file. A
    # dictionary would only be merged into the theme's own.
    "COLORS": lambda request: {},
    "SITE_FAVICONS": [
        {
            "rel": "icon",
            "type": "image/svg+xml",
            "href": lambda request: static("agentops/icon.svg"),
        }
    ],
    "STYLES": [lambda request: static("agentops/theme.css")],
    "SCRIPTS": [lambda request: static("agentops/keyboard.js")],
}
