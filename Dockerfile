# One image for web, worker, beat and Flower; docker-compose.yml says which is which.
# Your own apps: FROM this image, COPY them to /app, and name them in AGENTOPS_APPS.
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    AGENTOPS_DATA_DIR=/data

RUN useradd --system --uid 10001 --home-dir /app --no-create-home agentops \
    && install --directory --owner=agentops --group=agentops --mode=0700 /data

WORKDIR /app

# First, so that a change of the code does not install everything again.
COPY requirements.lock ./
RUN python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock

COPY manage.py ./
COPY templates ./templates
COPY tools ./tools
COPY runs ./runs
COPY approvals ./approvals
COPY agentops ./agentops

USER agentops
EXPOSE 8000

HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]

CMD ["python", "-m", "uvicorn", "agentops.asgi:application", "--host=0.0.0.0", "--port=8000", "--log-level=warning", "--no-server-header", "--http=agentops.heads:BoundedHeads", "--timeout-graceful-shutdown=5"]
