# make demo [INPUT='glob'] [TEXT_COLUMN=text] [OUTPUT=dir]   environment, install, the main job
# make test                                                  environment, install, the suite
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TEXT_COLUMN ?= text

.PHONY: demo test lint bench clean

demo: $(VENV)/.installed
	$(BIN)/shardpiece demo $(if $(OUTPUT),--output "$(OUTPUT)") $(if $(INPUT),$(foreach glob,$(INPUT),--input "$(glob)") --text-column "$(TEXT_COLUMN)")

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet -e ".[bench]"
	$(BIN)/python -m benchmarks.merge_loop
	$(BIN)/python -m benchmarks.end_to_end
	$(BIN)/python -m benchmarks.split
	$(BIN)/python -m benchmarks.count
	$(BIN)/python -m benchmarks.normalize
	$(BIN)/python -m benchmarks.unigram
	$(BIN)/python -m benchmarks.sentencepiece_bpe
	$(BIN)/python -m benchmarks.parity
	$(BIN)/python -m benchmarks.cut
	$(BIN)/python -m benchmarks.encode
	$(BIN)/python -m benchmarks.encode_stage
	$(BIN)/python -m benchmarks.preprocess

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "shardpiece needs Python 3.11 or newer, and '$(PYTHON)' is not: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "python -m venv failed (Debian and Ubuntu: apt-get install python3-venv)" >&2; rm -rf $(VENV); exit 2; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .hypothesis .ruff_cache
