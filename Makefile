# `make demo` and `make test` are all that a newcomer needs; `make` lists the rest. Nothing is done here: every line calls a
# CMake preset or a script of tools/.

PREFIX ?= /usr/local
SECONDS ?= 60
BENCH ?=
REQUESTS ?= 1000000
SWAPS ?= 100000
# What the build that `make demo` or `make test` begins leaves out for time.
COMPLETE = HEDDLE_GRAMMAR=ON HEDDLE_INSTRUCTION_SETS=all HEDDLE_DTYPES=all HEDDLE_HEAD_DIMS=all

.NOTPARALLEL:
.PHONY: help demo test ci serve soak build bench check conformance format asan fuzz install wheels clean

help: ## show this list
	@echo "heddle: one base model, many LoRA adapters in one batch"
	@sed -n 's/^\([a-z%-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

demo: ## build the program, fetch the model, and show answers of base model and adapters side by side
	@tools/demo

test: ## build what is missing and run the tests, also under the sanitizers
	@echo "[1/3] Debian packages"; tools/bootstrap build serve test
	@echo "[2/3] build, first what the demo needs, also with sanitizers"; tools/build_for_tests test
	@echo "[3/3] tests"; tools/test.sh test

ci: ## what `make test` leaves out: all kernels, headers alone, benches, tests of the release build, torch, docs, wheels
	@echo "[1/3] Debian packages"; tools/bootstrap build serve test
	@echo "[2/3] build"; tools/build_for_tests ci
	@echo "[3/3] tests"; tools/test.sh ci

test-%: ## build and run the tests of one family: make test-lora
	@tools/bootstrap
	@tools/test_family $*

serve: ## build the server and run it with the example adapters on 127.0.0.1:8000
	@tools/bootstrap build serve
	@HEDDLE_BUILD_SERVER=ON HEDDLE_GRAMMAR=ON tools/build release heddle_program heddle_serve_program
	@tools/with_model build/heddle serve --lora-root examples/adapters

soak: ## load the server for long: REQUESTS=1000000 over 200 adapters, reloads, slow and leaving clients; SWAPS=100000 of an adapter
	@tools/bootstrap build serve
	@tools/python_env
	@HEDDLE_BUILD_SERVER=ON HEDDLE_GRAMMAR=ON tools/build release heddle_program heddle_serve_program heddle_bench
	@HEDDLE_TEST_REQUESTS=$(REQUESTS) HEDDLE_TEST_IDLE_SECONDS=60 HEDDLE_TEST_RECORD=bench/results/server_soak.json \
		build/venv/bin/python tests/server/load_test.py build/heddle
	@build/heddle-bench swaps --shape tiny --device cpu --swaps $(SWAPS) --tokens 16 --prompt 16 --batch 8

build: ## build the program build/heddle, the libraries and the tests
	@tools/bootstrap
	@$(COMPLETE) tools/build release

bench: ## run the op benches; BENCH=lora runs those whose name has "lora"
	@tools/bootstrap
	@$(COMPLETE) tools/build release heddle_bench
	@build/heddle-bench $(BENCH)

check: build ## run the checks of the source tree alone: format, includes, headers, docs; clang-tidy of what changed
	@tools/bootstrap build check
	@ctest --test-dir build --output-on-failure -L check
	@tools/tidy.sh

conformance: ## hold tokenizers, templates and models against other implementations; writes build/conformance.json
	@tools/bootstrap
	@tools/build release heddle_tokenizer_ids render_template heddle_model_logits
	@tools/python_env conformance
	@build/venv/bin/python tests/conformance/conform.py build --record build/conformance.json

format: ## format all C++ in place
	@tools/bootstrap
	@tools/format.sh

asan: ## build and test with the address and undefined-behaviour sanitizers
	@tools/bootstrap
	@tools/build asan
	@ctest --preset asan

fuzz: ## run every fuzz target for SECONDS=60 each
	@tools/bootstrap build serve fuzz
	@tools/build fuzz
	@tools/fuzz.sh $(SECONDS) $(FUZZ)

install: ## install program, libraries, headers and CMake package to PREFIX=/usr/local
	@tools/bootstrap
	@$(COMPLETE) tools/build release heddle_installed
	@cmake --install build --prefix $(PREFIX)

wheels: ## build Python wheels for the CPU and for CUDA 13 in build-wheels, and try them in clean environments
	@tools/bootstrap
	@tools/wheels

clean: ## remove all build folders; the model in the cache stays
	@rm -rf build build-asan build-dev build-fuzz build-quick build-ci build-cuda build-gpu build-wheels build-wheels-cpu build-wheels-cuda
