# The front door of Tilewise. `make` alone prints the targets.
# Every target installs the Debian packages it lacks, configures its own tree under build/ and says what it does;
# MAX_JOBS=n limits the compilers that run at once, CMAKE_ARGS=... goes to the configuration.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/bash

JOBS = $(shell tools/build_jobs.sh)
CMAKE_ARGS ?=

# The thread pool, launches from many threads at once, the example's thread team. ctest calls the last generate_runtime_test.
TSAN_TESTS := parallel_test api_threads_test runtime_test

empty :=
space := $(empty) $(empty)

configure = cmake --preset $(1) $(CMAKE_ARGS)
build = cmake --build build/$(1) --parallel $(JOBS)

.PHONY: help
help:
	@echo "make TARGET, one of:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1@\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS=@ read -r name text; do \
	    printf '%-16s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: ## a language model writes text, every attention of it computed by Tilewise (PROMPT="...")
	tools/install_deps.sh demo
	tools/fetch_model.sh
	$(call configure,demo)
	$(call build,demo) --target generate
	build/demo/bin/generate $(if $(PROMPT),--prompt "$(PROMPT)")

.PHONY: build
build: ## library (with CUDA where nvcc is found), CLI, examples, tests and benchmarks, in build/dev-cpu
	tools/install_deps.sh test
	$(call configure,dev-cpu)
	$(call build,dev-cpu)

.PHONY: test
test: ## build, then the unit, conformance, script, source, kernel and Python checks
	tools/install_deps.sh test
	$(call configure,dev-cpu)
	@# What Python needs comes over the network, while the compilers use the processor; run_tests.py tries again if it did not come.
	{ nice tools/python_env.py wheel test >build/python-env.log 2>&1 & } ; $(call build,dev-cpu); built=$$?; wait; exit $$built
	tools/fetch_model.sh || echo "no model: the tests of examples/generate will fail"
	tools/run_tests.py --build-dir build/dev-cpu --jobs $(JOBS)

.PHONY: test-asan
test-asan: ## the built tests again, under AddressSanitizer and UndefinedBehaviorSanitizer
	tools/install_deps.sh test
	$(call configure,asan)
	$(call build,asan)
	tools/fetch_model.sh || echo "no model: the tests of examples/generate will fail"
	tools/run_tests.py --build-dir build/asan --jobs $(JOBS) --only built

.PHONY: test-tsan
test-tsan: ## the tests that use threads, under ThreadSanitizer
	tools/install_deps.sh test
	$(call configure,tsan)
	$(call build,tsan) --target $(TSAN_TESTS)
	tools/run_tests.py --build-dir build/tsan --jobs 1 --only built --filter '^(generate_)?($(subst $(space),|,$(TSAN_TESTS)))$$'

.PHONY: wheel
wheel: ## dist/tilewise-*.whl: one wheel for every Python and torch, with every GPU target (TILEWISE_CUDA_ARCHS=90 for one)
	tools/install_deps.sh test
	tools/build_wheel.py --jobs $(JOBS)

.PHONY: test-python
test-python: build ## the tests of the Python package alone
	tools/run_tests.py --build-dir build/dev-cpu --jobs $(JOBS) --only python

.PHONY: bench
bench: build ## time the CPU backend beside an unfused attention on OpenBLAS
	build/dev-cpu/bin/cpu_bench

sources = git ls-files -z --cached --others --exclude-standard '*.h' '*.hpp' '*.c' '*.cpp' '*.cu' '*.cuh'

.PHONY: kernel-report
kernel-report: build ## refresh docs/kernels/resources.md from the CUDA kernels of build/dev-cpu
	tools/kernel_report.py --build-dir build/dev-cpu --write

.PHONY: stage-gpu
stage-gpu: build ## fill .stage/gpu with what runs on another machine that has an NVIDIA driver
	tools/stage_gpu.py --build-dir build/dev-cpu

.PHONY: format
format: ## lay out the C and C++ sources with clang-format
	tools/install_deps.sh lint
	$(sources) | xargs -0 clang-format -i

.PHONY: lint
lint: ## source rules, layout and clang-tidy; changes nothing
	tools/install_deps.sh lint
	tools/check_includes.py
	tools/check_rules.py
	$(sources) | xargs -0 clang-format --dry-run -Werror
	$(call configure,dev-cpu)
	run-clang-tidy -quiet -j $(JOBS) -p build/dev-cpu '^$(CURDIR)/(src|examples)/.*\.cpp$$'

.PHONY: clean
clean: ## remove everything that was built (the downloaded model stays)
	rm -rf build .stage dist
