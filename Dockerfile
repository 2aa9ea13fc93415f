FROM python:3.12-slim-bookworm AS base

# What the service depends on, as a file of its own: the layer below is made anew only when that changes. The embedded Postgres is in it for
# its pg_dump and pg_restore (`slackwater backup`).
FROM base AS requirements
WORKDIR /build
COPY pyproject.toml ./
COPY client/pyproject.toml client/
RUN python -c "import pathlib, tomllib; project, client = (tomllib.loads(pathlib.Path(each).read_text())['project'] for each in ('pyproject.toml', 'client/pyproject.toml')); \
    extras = project['optional-dependencies']; foreign = [each for each in project['dependencies'] if not each.startswith('slackwater-client')]; \
    print(*foreign, *client['optional-dependencies']['cli'], *extras['otel'], *extras['embedded'], sep='\n')" > requirements.txt

# The guide, which the wheel carries: its reference is made of the code, so it needs everything that the code imports.
FROM base AS guide
WORKDIR /build
COPY --from=requirements /build/requirements.txt ./
COPY constraints.txt pyproject.toml ./
RUN python -c "import pathlib, tomllib; print(*tomllib.loads(pathlib.Path('pyproject.toml').read_text())['project']['optional-dependencies']['guide'], sep='\n')" > guide.txt \
    && pip install --no-cache-dir --constraint constraints.txt --requirement requirements.txt --requirement guide.txt
COPY mkdocs.yml ./
COPY docs docs
COPY deploy deploy
COPY client client
COPY app app
COPY engine engine
COPY migrations migrations
COPY tools tools
RUN PYTHONPATH=/build:/build/client python -m tools.guide

FROM base AS wheel
WORKDIR /build
COPY constraints.txt ./
RUN printf 'hatchling\n' > requirements.txt && pip install --no-cache-dir --constraint constraints.txt --requirement requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY client client
COPY app app
COPY engine engine
COPY migrations migrations
COPY --from=guide /build/app/guide/site app/guide/site
RUN python -m hatchling build -t wheel -d /dist && cd client && python -m hatchling build -t wheel -d /dist

FROM base
# the distribution keeps one patched version of each package: pinning it would break the build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 slackwater \
    && install --directory --owner=slackwater --group=slackwater /home/slackwater/data /data

COPY --from=requirements /build/requirements.txt /opt/slackwater/requirements.txt
COPY constraints.txt /opt/slackwater/constraints.txt
RUN pip install --no-cache-dir --constraint /opt/slackwater/constraints.txt --requirement /opt/slackwater/requirements.txt
# The code is in the image once, as the installed package.
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist pip install --no-cache-dir --no-deps --no-index /dist/*.whl

USER 10001
WORKDIR /home/slackwater
# Nothing is imported from the working directory, wherever a container is told to have it.
ENV PYTHONSAFEPATH=1 \
    SLACKWATER_HOST=0.0.0.0 \
    SLACKWATER_DATA_DIR=/home/slackwater/data \
    SLACKWATER_FILES_ROOT=/data
VOLUME /home/slackwater/data
EXPOSE 8080
# "unhealthy" also where no driver comes up; /readyz says why. Asked directly: a proxy that the environment names is for others.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import http.client, os, sys; service = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('SLACKWATER_PORT', '8080')), timeout=4); service.request('GET', '/readyz'); sys.exit(service.getresponse().status != 200)"]
CMD ["slackwater", "serve"]
