FROM python:3.12-slim-bookworm

# the distribution keeps one patched version of the package: pinning it would break the build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 slackwater \
    && install --directory --owner=slackwater --group=slackwater /home/slackwater/data

WORKDIR /opt/slackwater
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY engine engine
COPY migrations migrations
RUN pip install --no-cache-dir ".[otel]" && python -m compileall -q app engine

USER 10001
ENV SLACKWATER_HOST=0.0.0.0 SLACKWATER_DATA_DIR=/home/slackwater/data SLACKWATER_FILES_ROOT=/data
VOLUME /home/slackwater/data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
CMD ["slackwater", "serve"]
