# One command per need; `make help` lists them. Each makes .venv first, and makes it again only when a lock changes.

# Chip: a preset (`sluice config list`) or a file.
CONFIG ?= tiny
# Form of the array in `make verilog`: structural (synthesis) or loop (fast simulation).
EMIT ?= structural
# 1: `make sim` and `make test` write waveforms; FIRST:LAST: `make sim` does, of those cycles after the doorbell.
WAVES ?= 0
# What `make bench` measures; empty: everything.
BENCH ?=
# Tests at one time.
JOBS ?= auto
# Further arguments for pytest, for example: make test PYTEST_ARGS="-k fifo"
PYTEST_ARGS ?=
# Further arguments for the sluice command.
ARGS ?=

# Recipes use the environment's own programs by path, so that nothing depends on an activated shell.
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# The tests that count what they reach: benches of the hardware's files, which verif/unit mirrors (emit holds none), and
# random programs.
covering = $(filter-out %/test_random_programs.py %/test_harness.py,$(wildcard verif/unit/test_*.py)) \
	$(wildcard $(patsubst hw/sluice_hw/%/,verif/unit/%,$(filter-out %/__pycache__/ %/emit/,$(wildcard hw/sluice_hw/*/)))) \
	verif/system/test_random_programs.py
waves_on := $(filter-out 0 no off false,$(WAVES))
waves_window := $(if $(findstring :,$(WAVES)),=$(WAVES))

export WAVES
# An inherited value would send imports elsewhere.
unexport PYTHONPATH PYTHONHOME
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help sim test formal waves verilog asm lint bench baseline coverage soak clean base-env test-env lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Settings, with their defaults: CONFIG=$(CONFIG) EMIT=$(EMIT) WAVES=$(WAVES) BENCH= JOBS=auto PYTEST_ARGS= ARGS="

sim: base-env ## classify digits on the simulated chip CONFIG (WAVES=1 or 1000:3000 for waveforms)
	$(BIN)/sluice sim --config $(CONFIG) $(if $(waves_on),--waves$(waves_window)) $(ARGS)

test: test-env ## all tests: units, systems, proofs (PYTEST_ARGS="-k name" for some)
	$(PYTEST) verif -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

formal: test-env ## the proofs only
	$(PYTEST) verif/formal $(PYTEST_ARGS)

waves: base-env ## run `make sim` with waveforms
	$(BIN)/sluice sim --config $(CONFIG) --waves$(waves_window) $(ARGS)

verilog: base-env ## write the chip CONFIG as Verilog, EMIT=structural or loop
	$(BIN)/sluice verilog --config $(CONFIG) --emit $(EMIT) $(ARGS)

asm: base-env ## assemble the example programs
	@set -e; for file in examples/asm/*.s; do echo "$(BIN)/sluice asm $$file"; $(BIN)/sluice asm $$file $(ARGS); done

lint: test-env ## check the Python code and the generated Verilog
	$(BIN)/ruff check .
	$(BIN)/sluice lint --config $(CONFIG) --emit structural
	$(BIN)/sluice lint --config $(CONFIG) --emit loop

bench: base-env ## measure speed and cycles; BENCH=name for one
	$(BIN)/sluice bench $(BENCH) $(ARGS)

baseline: test-env ## record cycles of the fixed programs (REASON="why they change", CONFIGS="tiny v1" for some)
	$(BIN)/python -m verif.system.baseline $(CONFIGS) --reason "$(REASON)"

coverage: test-env ## what the tests reach of the hardware: lines, branches, toggles, functional bins; an HTML report
	rm -rf sim_build/report
	@status=0; SLUICE_COVERAGE=1 $(PYTEST) $(covering) -n $(JOBS) --dist worksteal $(PYTEST_ARGS) || status=$$?; \
		$(BIN)/python -m verif.coverage || status=$$?; exit $$status

soak: test-env ## long random tests; SLUICE_SEED=n replays one
	SLUICE_SEED=$${SLUICE_SEED:-random} $(PYTEST) verif -m soak $(PYTEST_ARGS)

clean: ## empty sim_build
	find sim_build -mindepth 1 -maxdepth 1 ! -name .gitignore -exec rm -rf {} +

lock: test-env ## resolve the dependencies anew and write the lock files
	$(BIN)/python -m verif.tools.relock

base-env:
	@sh verif/tools/setup.sh base

test-env:
	@sh verif/tools/setup.sh test
