# Every target sets itself up in .venv and does nothing twice. Needs make and python3 (3.10 or newer) with venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without bytecode: what is imported is compiled then, and that is a small part of what is installed.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
WORKERS ?= $(shell expr $$(nproc) + 1)
WAITERS ?= 4

.PHONY: mutants demo fleet-demo run test test-noisy properties lint check check-waiting check-working wheel installers bench soak soak-live compare pictures rivals accuracy calibration silicon oracle architectures unread parsers triage prove browser schema man catalogue clean

demo: $(VENV)/.run  ## the monitor on a simulated server: no GPU needed
	@$(BIN)/gpumon demo

fleet-demo: $(VENV)/.dev  ## a simulated fleet of 12 hosts, a real Prometheus (Debian's package) and the screen over it
	@$(BIN)/python -m tests.perf.farm --demo

run: $(VENV)/.run  ## the monitor on this host; more options: .venv/bin/gpumon --help
	@$(BIN)/gpumon

test:  ## everything that CI runs; first installs what is missing of the system (gcc, tmux, prometheus, ...)
	@PYTHON=$(PYTHON) tests/system_packages.sh
	@$(MAKE) --no-print-directory $(VENV)/.dev
	@echo 'make test: lint, a wheel, and some 8,600 tests: 10 to 30 minutes on two cores, by their speed'
	@$(MAKE) --no-print-directory --jobs=4 --keep-going lint wheel check-waiting check-working

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: $(VENV)/.compiled
	@$(MAKE) --no-print-directory --jobs=2 --keep-going check-waiting check-working

CHECK := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder -m "not gpu and not perf and not wide"

check-waiting: $(VENV)/.compiled  ## the modules of `make check` that wait for real time, more at a time than there are cores
	@mkdir -p build
	@echo 'the tests that wait for real time: build/waiting.txt'
	@$(CHECK) -n $(WAITERS) --waiting only >build/waiting.txt 2>&1; status=$$?; cat build/waiting.txt; exit $$status  # in one piece

check-working: $(VENV)/.compiled  ## all others
	$(CHECK) -n $(WORKERS) --waiting none

test-noisy: $(VENV)/.dev  ## the same tests beside eight busy loops of the same priority
	@for loop in 1 2 3 4 5 6 7 8; do nice sh -c 'while :; do :; done' & loops="$$loops $$!"; done; \
	trap "kill $$loops" EXIT; nice $(MAKE) --no-print-directory check

properties: $(VENV)/.dev  ## the tests over generated input, with new examples, all cases of wide matrices, all scenarios to their end
	$(BIN)/python -m pytest -n auto -m "(hypothesis or wide) and not gpu and not perf" --hypothesis-profile=random
	$(BIN)/python -m tests.accuracy.triage

wheel: $(VENV)/.dev  ## builds sdist and wheel, and tries the wheel in a venv of its own
	rm -rf dist build/venv
	$(BIN)/python -m venv --without-pip build/venv
	$(BIN)/python tests/linked_packages.py pyproject.toml build/venv
	build/venv/bin/python -m build --no-isolation --outdir dist . >/dev/null
	PYTHON=$(BIN)/python tests/smoke_wheel.sh dist/*.whl

installers: wheel  ## wheel and sdist by pip, pipx and uv, with every Python that is here
	tests/smoke_installers.sh dist

bench: $(VENV)/.dev  ## sizing per keystroke; gpumon against other monitors on one fake driver: CPU, memory, first paint, bytes
	$(BIN)/python -m tests.perf.bench_sizing
	$(BIN)/python -m tests.perf.bench_placement
	$(BIN)/python -m tests.perf.bench_simulate
	$(BIN)/python -m tests.perf.bench_fleet
	$(BIN)/python -m tests.perf.bench_prometheus
	$(BIN)/python -m tests.perf.bench

soak: $(VENV)/.dev  ## a day of keys, time travel, sizing and engines that come and go, in minutes: memory and descriptors stay flat
	$(BIN)/python -m tests.perf.soak

soak-live: $(VENV)/.dev  ## two real hours of the installed program beside engines that come and go: its memory stays flat
	$(BIN)/python -m tests.perf.soak_live

compare: $(VENV)/.dev  ## the screens of gpumon and of other monitors on one fake driver, as text in build/screens
	$(BIN)/python -m tests.perf.compare

pictures: $(VENV)/.dev  ## the SVG pictures in docs/, the moving one of the README among them: the demo in virtual time, in seconds
	$(BIN)/python -m tests.tui.screenshot

rivals: $(VENV)/.dev  ## fetches nvtop, btop (Debian) and monitors of vLLM for `make bench` and `make compare`; installs nothing
	tests/perf/rivals.sh $(VENV)/rivals

accuracy: $(VENV)/.dev  ## replays of real engines, against the client's count of every token: the tables in docs/accuracy.md
	$(BIN)/python -m tests.accuracy.replay --markdown docs/accuracy.md

calibration: $(VENV)/.dev  ## the latency of a held-back load, predicted by a live fit, against what was measured
	$(BIN)/python -m tests.accuracy.calibration

oracle: .venv-oracle/.ready  ## what the real model code has, multiplies and keeps: tests/data/oracle (torch and transformers, in a venv of their own)
	.venv-oracle/bin/python -m tests.oracle

architectures: .venv-oracle/.ready $(VENV)/.dev  ## which model types of the installed transformers are neither modelled nor listed as not modelled
	@.venv-oracle/bin/python -m tests.oracle.architectures | $(BIN)/python -m tests.specs.missing_architectures

unread: $(VENV)/.dev  ## metrics that are neither read nor listed in docs/engines.md: of the pages in tests/data, or of PAGES="URL-or-file ..."
	@$(BIN)/python -m tests.sources.engines.unread $(PAGES)

parsers: .venv-oracle/.ready  ## options of the engines' own parsers, from the wheels and sources in the folder WHEELS
	.venv-oracle/bin/python -m tests.engine_parsers $(WHEELS)

mutants: $(VENV)/.dev  ## plausible faults put into the code one by one: tests must notice each (minutes)
	$(BIN)/python -m tests.mutants

silicon: $(VENV)/.dev  ## sizing and simulation against measured servers: the tables in docs/sizing-accuracy.md, the constants in docs/sizing.md; ROWS=FILE.csv for other rows
	$(BIN)/python -m tests.accuracy.silicon $(ROWS) $(if $(ROWS),,--markdown docs/sizing-accuracy.md --constants docs/sizing.md)
	$(if $(ROWS),,$(BIN)/python -m tests.accuracy.simulated --markdown docs/sizing-accuracy.md)
	$(if $(ROWS),,$(BIN)/python -m tests.accuracy.poisson --markdown docs/sizing-accuracy.md)
	$(if $(ROWS),,$(BIN)/python -m tests.accuracy.aiconfigurator --markdown docs/sizing-accuracy.md)

triage: $(VENV)/.dev  ## every verdict in every scenario of the demo, with three kinds of traffic, against the truth: the table in docs/accuracy.md; fails on a false one
	$(BIN)/python -m tests.accuracy.triage --seeds 1,2,3 --markdown docs/accuracy.md
	$(BIN)/python -m tests.accuracy.healthy --seeds 1,2,3 --markdown docs/accuracy.md
	$(BIN)/python -m tests.accuracy.forecast --seeds 1,2,3 --markdown docs/accuracy.md

prove: $(VENV)/.dev  ## real engines on this host (installed when missing): found and measured without configuration, and their troubles named
	-$(BIN)/python -m tests.real.install
	$(BIN)/python -m tests.real.prove
	-$(BIN)/python -m tests.real.install sglang
	$(BIN)/python -m tests.real.troubles --markdown docs/accuracy.md

browser: $(VENV)/.dev  ## `gpumon web --demo` in a headless Chromium (installed already): screen, keys, size, its end
	$(BIN)/python -m tests.real.browser

schema: $(VENV)/.dev  ## docs/schema.json, docs/fleet.schema.json, docs/sizing.schema.json, docs/simulate.schema.json, docs/compare.schema.json and docs/report.schema.json from the types
	$(BIN)/python -m gpumon.outputs.schema > docs/schema.json.new && mv docs/schema.json.new docs/schema.json
	$(BIN)/python -m gpumon.outputs.fleet_schema > docs/fleet.schema.json.new && mv docs/fleet.schema.json.new docs/fleet.schema.json
	$(BIN)/python -m gpumon.outputs.sizing_data > docs/sizing.schema.json.new && mv docs/sizing.schema.json.new docs/sizing.schema.json
	$(BIN)/python -m gpumon.outputs.simulation_data > docs/simulate.schema.json.new && mv docs/simulate.schema.json.new docs/simulate.schema.json
	$(BIN)/python -m gpumon.outputs.before_after > docs/compare.schema.json.new && mv docs/compare.schema.json.new docs/compare.schema.json
	$(BIN)/python -m gpumon.outputs.fleet_period > docs/report.schema.json.new && mv docs/report.schema.json.new docs/report.schema.json

catalogue: $(VENV)/.dev  ## gpumon/specs/data/llms.jsonl from the published configs in tests/data/catalogue
	$(BIN)/python -m tests.catalogue

man: $(VENV)/.run  ## the manual page: build/gpumon.1
	@mkdir -p build
	$(BIN)/gpumon completion man > build/gpumon.1

clean:
	rm -rf $(VENV) .venv-oracle dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The stamps: what is installed, redone when pyproject.toml changes. .dev holds all that .run does.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo 'installing gpumon and what it needs into $(VENV): about a minute'
	@test $(VENV)/.dev -nt pyproject.toml || $(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo 'installing gpumon, what it needs, and what its tests need into $(VENV): about a minute'
	@$(PIP) --editable '.[dev]'
	@touch $@

# The bytecode of all tests: without it, each worker of `make check` compiles all of them for itself.
$(VENV)/.compiled: $(VENV)/.dev $(shell find gpumon tests -name '*.py')
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || :  # `make check` says what is wrong
	@touch $@

# Linux's torch of the default index brings CUDA along, which isn't used: spare the download with
# `make oracle ORACLE_INDEX="--extra-index-url https://download.pytorch.org/whl/cpu"`.
.venv-oracle/.ready: tests/oracle/requirements.txt
	@$(PYTHON) -m venv .venv-oracle
	@.venv-oracle/bin/python -m pip install --quiet --disable-pip-version-check $(ORACLE_INDEX) -r $<
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "gpumon needs Python 3.10 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 has no venv: apt-get install python3-venv" >&2; exit 1; }
