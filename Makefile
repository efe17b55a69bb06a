# Every target uses .venv; `make venv` makes it. See README.md.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONPATH := $(CURDIR)/broker/src:$(CURDIR)/operator/src:$(CURDIR)/spark-on-k8s/src
WORKERS ?= 2
E2E ?= local
# Where it is set, each of the hundreds of brokers that the tests start would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: venv lock demo test fast check crds job-table dashboards metrics dashboards-pictures format test-floors test-rest quarantine images fuzz proof-stored-bytes sim torture weeks soak proof bench bytecodes compat-clients e2e-tools e2e jobs-test kubernetes kubernetes-down clean

venv: .venv/ready

.venv/ready: pyproject.toml requirements/dev.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

# The versions with their hashes that CI and images have, within the ranges of pyproject.toml; LOCK=--upgrade takes newer ones.
LOCKED = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock' $(LOCK)
lock: venv
	$(LOCKED) --extra dev --extra demo --output-file requirements/dev.txt
	$(LOCKED) --extra broker --constraints requirements/dev.txt --output-file requirements/broker.txt
	$(LOCKED) --extra operator --constraints requirements/dev.txt --output-file requirements/operator.txt
	$(LOCKED) --extra jobs-without-spark --constraints requirements/dev.txt --output-file requirements/jobs.txt
	$(LOCKED) --extra spark --constraints requirements/dev.txt --output-file requirements/spark.txt
	touch pyproject.toml

# Spark is half a gigabyte: only what runs or checks the jobs waits for it.
.venv/spark: .venv/ready
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/spark.txt
	touch $@

demo: venv
	$(BIN)/python examples/demo.py

check: .venv/spark
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy operator/tests
	$(BIN)/mypy broker/tests
	$(BIN)/mypy spark-on-k8s/tests
	$(BIN)/mypy tests/architecture tests/benches tests/cluster tests/examples tests/conftest.py tests/soak.py images/prepare_spark.py
	$(BIN)/mypy conftest.py
	$(BIN)/mypy tests/faults
	$(BIN)/mypy --explicit-package-bases tests/compat
	$(BIN)/mypy --explicit-package-bases tests/releases tests/rights tests/hostile
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/architecture/lengths.py
	$(BIN)/python tests/architecture/passed_in.py
	$(BIN)/python tests/architecture/owners.py
	$(BIN)/python tests/architecture/names.py
	$(BIN)/python tests/architecture/module_names.py
	$(BIN)/python tests/architecture/words.py
	$(BIN)/python tests/architecture/links.py
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m documents.validated_page --check docs/reference/validated.md

# What is made of the types of resources: CRDs, the chart's copy, the reference of all fields.
crds: venv
	$(BIN)/python -m barnabas_operator.resources.crd crds helm/barnabas/crd-files
	$(BIN)/python -m barnabas_operator.resources.reference docs/reference/fields.md

# What the operator knows of the jobs, of the types of their options; `make crds` comes after it.
job-table: .venv/spark
	$(BIN)/python -m barnabas_jobs.app.job_table operator/src/barnabas_operator/resources/job_table.json

# Grafana's JSON, of the code in dashboards/.
dashboards: venv
	$(BIN)/python -m dashboards helm/barnabas/monitoring/dashboards

# Each metric with its meaning, read of two brokers that run meanwhile, of the lag exporter and of the operator.
metrics: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m monitoring.metrics_page docs/reference/metrics.md

# The pages of all APIs and settings, from the broker's tables.
.PHONY: reference
reference: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m documents.reference_pages docs/reference

# The pages as a site in .cache/site, by a generator in an environment of its own.
.PHONY: docs
docs: .venv-docs
	rm -rf .cache/pages && mkdir -p .cache/pages
	git ls-files -z '*.md' docs examples helm/barnabas/monitoring | xargs -0 cp --parents -t .cache/pages
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet
	@echo "open .cache/site/index.html"

.venv-docs:
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet 'mkdocs-material==9.8.2'

# Every command of the tutorials and how-to pages: on this machine in a network of its own, and on a Kubernetes (root; kcat, a JDK, `make e2e-tools`).
# CI runs the tutorial for a laptop only. PAGES=tests/documents leaves Kubernetes out.
.PHONY: docs-test
PAGES ?= tests/documents tests/e2e/pods/test_pages_on_kubernetes.py
docs-test: .venv/spark
	test $(E2E) != local || $(MAKE) images
	E2E=$(E2E) BARNABAS_SOAK=true $(BIN)/pytest -q -s -n 0 --timeout 3600 $(PAGES)

# Runs the tests of the clients and programs in tests/documents/validated.toml; the page has their versions and results. Some 15 minutes;
# what the machine lacks (`make compat-clients e2e-tools`) is "not run".
.PHONY: validated
validated: .venv/spark
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m documents.validated_page docs/reference/validated.md

# A picture of each for docs/, of a real cluster under load; needs Debian's chromium, npm, and what `make e2e-tools` builds.
dashboards-pictures: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m monitoring.pictures docs/pictures

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fast: venv
	$(BIN)/pytest -q -n $(WORKERS) -m 'not slow' broker operator

# What each test costs is in $(RESULTS); tests that share something dear run in one worker, and those of a file.
RESULTS ?= .cache/results
PYTEST = $(BIN)/pytest --dist loadgroup --no-loadscope-reorder --costs $(RESULTS)/$@.jsonl --junitxml $(RESULTS)/$@.xml

test: .venv/spark
	$(PYTEST) -n $(WORKERS)

# Both together are `make test`: first what needs nothing but `make venv`.
test-floors: .venv/spark
	$(PYTEST) -n $(WORKERS) --part floors broker/tests operator/tests

# Its workers mostly wait: one has Spark, one Kubernetes' API server, one all the rest.
test-rest: .venv/spark
	$(PYTEST) -n $(or $(REST_WORKERS),3) --part rest broker/tests/metadata spark-on-k8s/tests tests

# The tests in tests/gate/quarantine.toml, which `make test` and `make e2e` leave out.
quarantine: .venv/spark
	$(PYTEST) -n 1 --quarantined

# Spark with its real Kafka connector against real brokers; needs a JRE, and Maven Central the first time.
jobs-test: .venv/spark
	$(BIN)/pytest -q -n $(WORKERS) spark-on-k8s/tests

# PROOF='--rounds 5 --seed 7': executors that are killed while they restore; what is restored is equal each time. Half an hour.
.PHONY: proof-restore
proof-restore: .venv/spark
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/spark-on-k8s/tests $(BIN)/python spark-on-k8s/tests/proof_restore.py $(PROOF)

compat-clients: venv
	tests/compat/install.sh

# Debian's packages and the programs of Kubernetes, for tests against a real one.
e2e-tools: venv
	tests/local_kubernetes/install.sh

# What pods run, built of the sources where they are others than last time; needs root.
images: venv
	tests/local_kubernetes/install.sh images

# All of a release of this commit in `dist/`: wheel, sdist, images, chart, bills of materials, checksums, notes. SIGN_KEY=FILE signs it
# (SIGN_PASSWORD in the environment), PUBLISH=HOST/PATH pushes images and chart. Needs root and `make e2e-tools`.
RELEASE = PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m release
.PHONY: release
release: venv
	SIGN_KEY=$(SIGN_KEY) $(RELEASE) dist $(if $(PUBLISH),--publish=$(PUBLISH))

# E2E=local (a real Kubernetes by processes; needs root), E2E=kind (needs Docker) or E2E=current (your KUBECONFIG).
e2e: venv
	test $(E2E) != local || $(MAKE) images
	E2E=$(E2E) $(PYTEST) -n 0 --timeout 900 tests/e2e/pods $(E2E_ARGS)

# A real Kubernetes by itself: it stays in the background until `make kubernetes-down`, and says how to use it. Needs root and
# what `make e2e-tools` installs. NODES=3 are as many nodes, HELM=1 installs the chart, JOBS=1 loads the image of MaintenanceJobs,
# FOLDER=... is one more beside it.
KUBERNETES = PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m local_kubernetes $(if $(FOLDER),--folder=$(FOLDER))
kubernetes: venv
	@$(KUBERNETES) up --nodes=$(or $(NODES),1) $(if $(HELM),--helm) $(if $(JOBS),--jobs)

kubernetes-down: venv
	@$(KUBERNETES) down

# FUZZ='--seed 7 --cases 1000' replays; the seed is printed first.
fuzz: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m fuzz $(FUZZ)

# Brokers on damaged files and records; FUZZ replays as above.
proof-stored-bytes: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m fuzz.damaged_broker $(FUZZ)

# Each request without each right, at our broker and at Apache Kafka; PROOF=--write stores what tests expect of ours. Needs a JDK.
.PHONY: proof-acls
proof-acls: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m rights $(PROOF)

# PROOF='--records 1000000 --lines 20000 --numbers 50000 --transactions 200 --seed 7': copies by librdkafka and Java, words counted
# by Kafka Streams, transactions of all client libraries, and numbers
# of Kafka Connect, over three brokers that are killed and rolled; needs a JDK, and Maven Central the first time.
.PHONY: proof-transactions
proof-transactions: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/tests/compat $(BIN)/python -m exactly_once $(PROOF)

# PROOF='--rounds 100 --seed 7' replays; `--peer apache-kafka` does the same to Apache Kafka. Needs root, a JDK and Go. Half an hour.
.PHONY: proof-jepsen
proof-jepsen: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/tests/compat $(BIN)/python -m jepsen $(PROOF)

# SIM='--seed 7' replays; SIM='--seeds 500 --first 10000' goes on elsewhere.
sim: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m simulation $(SIM)

# TORTURE='--rounds 20 --seed 7' replays; the seed is printed first. Network and disk faults need root.
torture: venv
	BARNABAS_SOAK=true PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m torture $(TORTURE)

# WEEKS='--actions 20 --seed 7' replays; the seed is printed first. E2E_FIGURES names a file for the table of stalls. Needs root.
weeks: images
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m e2e.weeks $(WEEKS)

# Hours: 10,000 seeds of the simulation, 200 rounds of torture and 200 actions of users on pods, with their figures at the end.
# SOAK='--seeds 200 --rounds 5 --actions 20' is shorter.
soak: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m soak $(SOAK)

# Tests in their long form, one after the other, for they assert times: all of them for hours, or PROOF='tests/faults/test_kill_nine.py'.
# TEST_SEED=7 replays; the seed is printed. What hypothesis tries is random.
proof: .venv/spark
	E2E=$(E2E) BARNABAS_SOAK=true $(PYTEST) -n 0 -s --timeout 3600 -m 'soak or hypothesis' $(PROOF)

# What one Produce and one Fetch cost, in bytecodes; more than `bench/bytecodes.py` allows fails.
bytecodes: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m bench.bytecodes

# BENCH='--quick --only "raw.*"': see `python -m bench --help`.
bench: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m bench --date "$$(date -u +%F)" $(BENCH)

clean:
	rm -rf .cache build dist *.egg-info
