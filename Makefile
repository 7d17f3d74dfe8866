# Everything a developer runs. Needs Python 3.11 or 3.12 and Java 17; the rest comes by itself.
# The virtualenv is .venv; jars are cached outside the clone (PUNCTUAL_CACHE_DIR, else ~/.cache).

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MAKEFLAGS += --no-print-directory

.PHONY: setup chromium lint test e2e fuzz chaos bench demo chart images clean
.DEFAULT_GOAL := test

setup: $(STAMP)
	@$(BIN)/python -m punctual_worker.local.jars

# The pages' tests need a browser: installed if we may, else those tests are skipped and say why.
chromium:
	@if ! { command -v chromium && command -v chromedriver; } >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing chromium"; \
	    { apt-get update -qq && apt-get install -y -qq chromium chromium-driver; } >/dev/null 2>&1 \
	      || echo "chromium cannot be installed: tests of the pages will be skipped"; \
	  else echo "no chromium and chromedriver: tests of the pages will be skipped"; fi; fi

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python was not found: install Python 3.11 or 3.12."; exit 2; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; (3, 11) <= v < (3, 13) or sys.exit("$(PYTHON) is Python %d.%d: want 3.11 or 3.12, for example make PYTHON=python3.11." % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Python packages into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[operator,worker,dev]' -c constraints.txt
	@touch $@

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

test: setup chromium lint
	@$(BIN)/pytest $(ARGS)

# on a real node, with real containers of our images: needs root and changes the machine meanwhile
e2e: setup
	@$(BIN)/python tests/e2e/prepare.py
	@$(BIN)/pytest -m e2e -s tests/e2e $(ARGS)

chaos: setup
	@$(BIN)/python tests/chaos/run.py --minutes $(or $(MINUTES),3) --seed $(or $(SEED),1)

# the long form: so many random requests against the oracle
fuzz: setup
	@PUNCTUAL_FUZZ_REQUESTS=$(or $(REQUESTS),100000) $(BIN)/pytest -m slow tests/unit/intake $(ARGS)

# on a quiet machine: the figures stand beside what this machine can do at best
bench: setup
	@$(BIN)/python bench/run.py $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

demo: setup
	@$(BIN)/punctual demo $(if $(ONCE),--once)

# after a change of the custom resource definition
chart:
	@cp crds/scheduler.yaml helm/punctual/files/scheduler.yaml

# with docker, or anything else that takes the same words: make images ENGINE=podman
images:
	@for image in operator worker; do \
	  $(or $(ENGINE),docker) build -f $$image/Dockerfile -t punctual-$$image:$(or $(TAG),0.1.0) $(ARGS) . || exit; done

clean:
	rm -rf $(VENV) .punctual .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
