# The two commands are `make demo` and `make test`; both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.headrace-setup
PACKAGES := headrace.client headrace.mixer headrace.native headrace.proto headrace.server headrace.tokenizer
LINKS := client mixer native proto server tokenizer
RUST := native/Cargo.toml native/Cargo.lock $(shell find native/src -name '*.rs' 2>/dev/null)

# Set in many containers, it makes each process compile all that it imports, torch too; tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test lint types trainers rust pytest proto proto-check constraints bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

setup: $(STAMP)  ## make .venv with everything pinned; does nothing when nothing changed

$(STAMP): pyproject.toml constraints.txt $(RUST)
	@command -v cargo >/dev/null || { echo "error: \`cargo\` is missing, the Rust core cannot be built; install it with: curl https://sh.rustup.rs -sSf | sh" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "error: a C linker (\`cc\`) is missing; install it with: apt-get install gcc (or your system's gcc package)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "error: Python 3.11 or newer is needed, and \`$(PYTHON)\` is missing or older; install it with: apt-get install python3 python3-venv (or name another: make PYTHON=python3.12)" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) >/dev/null || { rm -rf $(VENV); echo "error: \`$(PYTHON) -m venv\` failed; install it with: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@echo "setup: installing the pinned packages into $(VENV) (torch and its CUDA libraries are 5 GB, downloaded once and hard-linked from uv's cache afterwards)"
	@mkdir -p build/src/headrace
	@for d in $(LINKS); do ln -sfn ../../../$$d build/src/headrace/$$d; done
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --constraint constraints.txt setuptools setuptools-rust
	@echo "setup: building the Rust core"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --no-build-isolation --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup  ## the whole path on real text: tokenizer, corpus, server, trainers, a swap, a crash, a resume
	$(BIN)/headrace demo

test: lint types rust pytest  ## everything CI checks

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd native && cargo fmt --check && cargo clippy --quiet --all-targets -- -D warnings

types: setup proto-check
	$(BIN)/mypy $(addprefix -p ,$(PACKAGES))
	MYPYPATH=build/src $(BIN)/python -m mypy.stubtest headrace.native._native

trainers: setup  ## install Hugging Face, Lightning, torchtitan, ... and run the tests of their adapters
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-build-isolation --editable '.[dev,trainers]'
	HEADRACE_SLOW=1 $(BIN)/python -m pytest tests/client/test_examples.py tests/client/test_trainers.py

rust: setup
	cd native && cargo test --quiet

pytest: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder  # two processes, each with servers and stores of its own

proto: setup  ## regenerate the gRPC code (committed) from proto/v1/*.proto
	$(BIN)/python -m grpc_tools.protoc -Iheadrace/proto=proto --python_out=build/src --pyi_out=build/src --grpc_python_out=build/src proto/v1/*.proto

proto-check: setup
	$(BIN)/python tests/check_proto.py

constraints: setup  ## resolve the pins anew (no addresses in the file)
	$(BIN)/uv pip compile pyproject.toml --extra dev --python-version 3.11 --no-emit-index-url --no-annotate --no-header --quiet --upgrade --output-file constraints.txt

bench: setup  ## measure every part, in its quick form
	@for file in tests/bench/bench_*.py; do echo "== $$file"; $(BIN)/python $$file --quick || exit 1; done

clean:  ## remove what setup and builds made
	rm -rf $(VENV) build native/target *.egg-info demo-out
