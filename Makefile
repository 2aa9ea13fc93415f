# The two commands of the README are `make demo` and `make test`. Everything runs in .venv, which the first of them creates.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help
# Each process of the service imports 800 of our modules: without their bytecode that is a second of CPU more.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo guide guide-run guide-fill serve test test-slow faults kafka cdc-example soak lint bench client console console-test jar constraints deploy-pages deploy-tools deploy-check clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/python-ok: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Slackwater needs Python 3.11 or newer; found $$($(PYTHON) --version). Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

# compileall: a Spark worker's first imports take 3.5 s from source and 1.3 s from bytecode
$(VENV)/demo-ok: $(VENV)/python-ok pyproject.toml client/pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (PySpark is 450 MB; a minute or two the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./client -e '.[demo]'
	@$(BIN)/python -m compileall -q $(VENV)/lib >/dev/null 2>&1 || true
	@touch $@

$(VENV)/dev-ok: $(VENV)/demo-ok
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ./client -e '.[dev]'
	@touch $@

$(VENV)/classes-ok: $(VENV)/dev-ok engine/spark/jars/slackwater.jar
	@$(BIN)/python -m tests.classes
	@touch $@

# What the guide is made of; the reference is made of the code.
GUIDE := app/guide/site/index.html
$(GUIDE): $(VENV)/demo-ok mkdocs.yml $(shell find docs app engine client tools/guide -name '*.md' -o -name '*.py' -o -path 'docs/*.svg')
	@echo "Building the guide ..."
	@$(BIN)/python -m tools.guide

guide: $(GUIDE) ## build the documentation that the service shows at /guide
	@:

guide-run: $(VENV)/classes-ok ## run the blocks of the guide's pages against a service and compare their answers (PAGE=docs/tutorial.md: of one)
	@$(BIN)/python -m tests.guide $(PAGE) $(ARGS)

guide-fill: $(VENV)/classes-ok ## the same, and write the answers into the page (PAGE=docs/tutorial.md)
	@$(BIN)/python -m tests.guide --fill $(PAGE) $(ARGS)

demo: $(VENV)/demo-ok ## install, start the service, feed it a month of real flights and weather, show the results
	@$(MAKE) --no-print-directory guide || echo "The service shows no guide; everything else works."
	@$(BIN)/python -m examples.flights $(ARGS)

serve: $(VENV)/demo-ok ## start the service (embedded Postgres unless SLACKWATER_DATABASE_URL is set)
	@$(MAKE) --no-print-directory guide || echo "The service shows no guide; everything else works."
	@$(BIN)/slackwater serve

# Three for two cores: many tests wait for processes that they started.
test: $(VENV)/classes-ok ## run the tests, three files at a time (one: ARGS='-n 0')
	@$(BIN)/python -m pytest -m 'not slow and not bench and not kafka' -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(VENV)/classes-ok ## run the tests that take minutes, but for those of `make faults`, and draw seven times the examples
	@TEST_EXAMPLES=$${TEST_EXAMPLES:-3} $(BIN)/python -m pytest -m 'not slow and not kafka' tests/property $(ARGS)
	@TEST_EXAMPLES=$${TEST_EXAMPLES:-3} $(BIN)/python -m pytest -m 'slow and not faults and not kafka and not cdc' $(ARGS)

faults: $(VENV)/classes-ok ## kill, stop, cut off and fill up what runs, for two hours at most, and audit the results
	@$(BIN)/python -m tests.faults $(ARGS)

# What cannot be run fails, with the reason: nobody asks for these tests to have them skipped.
kafka: $(VENV)/classes-ok ## run the tests that need a Kafka broker, a schema registry or Debezium (Java, Maven, Postgres; the rest is fetched once)
	@$(BIN)/python -m pytest -p tests.no_skips -m 'kafka or cdc' tests/kafka tests/cdc $(ARGS)

cdc-example: $(VENV)/classes-ok ## run docs/guides/change-data.md: a database's changes by Debezium (Maven fetches it once), joined with clicks
	@$(BIN)/python -m examples.change_data

soak: $(VENV)/dev-ok ## let a service work for half an hour (SOAK_MINUTES=5: five) and look for what keeps growing
	@$(BIN)/python -m pytest -s tests/faults/test_soak.py $(ARGS)

lint: $(VENV)/dev-ok ## format, lint, types, import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/yamllint -d "{extends: relaxed, rules: {line-length: disable}}" docker-compose.yml deploy/prometheus deploy/helm/slackwater/Chart.yaml deploy/helm/slackwater/values.yaml tests/deploy

bench: $(VENV)/dev-ok ## measure on the NX-T input; see tests/bench
	@$(BIN)/python -m tests.bench nxt $(ARGS)

deploy-pages: $(VENV)/dev-ok ## write the dashboard and the page of the alerts anew (deploy/)
	@$(BIN)/python deploy/grafana/dashboard.py > deploy/grafana/slackwater.json
	@$(BIN)/python deploy/prometheus/alerts_page.py > deploy/prometheus/README.md

# Versions that the tests were run with; newer ones do as well.
# Without Prometheus' service discovery, which nothing here uses, promtool takes a part of the time to build.
deploy-tools: $(VENV)/dev-ok ## build promtool, helm and kubeconform, which check deploy/, into .venv/bin (needs Go; ten minutes)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[deploy]'
	@GOBIN=$(CURDIR)/$(BIN) go install -tags remove_all_sd github.com/prometheus/prometheus/cmd/promtool@v0.316.0
	@GOBIN=$(CURDIR)/$(BIN) go install helm.sh/helm/v3/cmd/helm@v3.22.0
	@GOBIN=$(CURDIR)/$(BIN) go install github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0

deploy-check: $(VENV)/dev-ok ## check rules, dashboard and chart, with those tools where they are there
	@$(BIN)/python -m pytest -n 0 -m '' tests/deploy $(ARGS)

client: $(VENV)/dev-ok ## generate the blocking half of the Python client, and its answers
	@$(BIN)/python tools/generate_client.py

console: $(VENV)/dev-ok ## build the web pages of app/console (needs Node 20 or newer); what it makes is kept in git
	@$(BIN)/python tools/openapi.py > app/console/openapi.json
	@cd app/console && npm ci --no-progress && npm run --silent types && npm run --silent check && npm run --silent build

console-test: $(VENV)/dev-ok ## drive the web pages with a browser (Chromium; SLACKWATER_CHROMIUM names another one)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	@$(BIN)/python -m pytest -m console tests/console $(ARGS)

jar: $(VENV)/dev-ok ## compile engine/spark/java (needs a JDK); what it makes is kept in git
	@$(BIN)/python -m engine.spark.make_jar

# Resolved anew, by the index that pip is set up with; only names and versions are kept.
constraints: $(VENV)/python-ok ## write constraints.txt with the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --report $(VENV)/resolved.json -e ./client -e '.[dev,deploy,browser]'
	@$(BIN)/python .ci/constraints.py $(VENV)/resolved.json

clean: ## remove the environment and what the demo kept
	@rm -rf $(VENV) .slackwater .guide app/guide/site
