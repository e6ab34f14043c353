# Triton From First Principles. `make` alone lists what can be made.
#
# Every target sets up what it needs: a virtual environment in .venv with the
# versions of constraints.txt. Settings: PYTHON=python3.12 picks the interpreter
# of a new .venv, JOBS=8 the test processes, TESTS=tests/test_jit.py some tests,
# PACK=captures.tar.gz an archive of what `make capture` made.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= auto
TESTS ?= tests exercises

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: book
book: $(READY) ## tangle and weave: _book/index.html and the PDF beside it
	@$(RUN) weave.py

.PHONY: test
test: $(READY) ## run all tests, and the exercises on their printed solutions
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(RUN) -m pytest -p loom.budget \
		-n $(JOBS) --dist loadfile $(TESTS) \
		$(if $(filter exercises%,$(TESTS)),--solutions)

.PHONY: check
check: $(READY) ## check that package, book, code and texts agree; change nothing
	@$(RUN) tangle.py --check
	@$(RUN) weave.py --check
	@$(VENV)/bin/ruff check --quiet
	@$(VENV)/bin/ruff format --check --quiet
	@$(VENV)/bin/mypy
	@$(RUN) -m pytest -q tests/test_house.py

.PHONY: format
format: $(READY) ## format the chapters' code and the Python files, then tangle
	@$(VENV)/bin/ruff check --quiet --fix
	@$(VENV)/bin/ruff format
	@$(RUN) tangle.py

.PHONY: tangle
tangle: ## write generated/ from the chapters (needs no .venv)
	@$(PYTHON) tangle.py

.PHONY: watch
watch: ## carry each saved edit from chapter to module and back, until Ctrl-C
	@$(PYTHON) tangle.py --watch

.PHONY: serve
serve: $(READY) ## preview the book in a browser; rebuild on save, until Ctrl-C
	@$(RUN) weave.py --serve

.PHONY: exercises
exercises: $(READY) ## run the exercises on their printed solutions
	@$(RUN) -m pytest exercises --solutions

.PHONY: capture
capture: $(READY) ## run the capture cells on this machine's GPU and keep what it says
	@command -v nvidia-smi > /dev/null || { \
		echo "make capture: no NVIDIA driver here (nvidia-smi is not found); run" \
			"it on a machine with a CUDA GPU and commit captures/" >&2; exit 1; }
	@$(RUN) weave.py --capture $(if $(PACK),--pack $(PACK))

.PHONY: gate
gate: $(READY) ## compile every kernel configuration for every GPU it is meant for
	@$(RUN) -m loom.gate

.PHONY: compat
compat: $(READY) ## run the gate and the interpreter's tests under Triton 3.6 and 3.9
	@$(RUN) -m loom.compat

.PHONY: wheel
wheel: $(READY) ## build the wheel into dist/
	@$(RUN) -m build --wheel --no-isolation --outdir dist

.PHONY: clean
clean: ## remove what was built; .venv and the sync base in .tangle/ stay
	@rm -rf _book .weave .quarto dist build .pytest_cache .mypy_cache .ruff_cache \
		.hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# The stamp is newer than what decides the environment's contents, or is remade.
$(READY): pyproject.toml constraints.txt
	@[ "$$(uname -s)" = Linux ] || { \
		echo "make: Triton is published for Linux only, and this is $$(uname -s);" \
			"use a Linux machine, a container or WSL 2 (README.md, 'What you" \
			"need')" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
		echo "make: Python 3.11 or newer is needed; $(PYTHON) is" \
			"$$($(PYTHON) --version 2> /dev/null || echo not here); name another" \
			"with make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(RUN) -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "make: installing into $(VENV) (once; torch is large)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[book,test]'
	@touch $@
