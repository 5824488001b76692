"""The steps of tools/gpu_check, in their order."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

from gpu.programs import MODEL_LOGITS, programs_in, with_package
from gpu.runner import show

STEPS = ("cpu", "gpu", "engine", "model", "sanitizer", "python", "families", "bench")
# Tests of step python that need the engine; those of step families, with models on the GPU.
NEED_ENGINE = ("test_llm_cuda.py",)
FAMILIES = ("python/tests/test_families.py", "python/tests/adapters/test_adapter_kinds.py", "python/tests/adapters/test_adapter_lists.py")
# 200 steps of a small model with adapters that come and go.
SANITIZED_ENGINE_TEST = "AdapterFolderTest.TwoHundredStepsOfMixedRowsKeepTheirBits"


def run_steps(runner, folder, steps, quick, python, model, only):
    def programs(pattern):
        return [p for p in programs_in(folder, pattern) if re.search(only, p.name)]

    def files(*patterns):
        return sorted(p for pattern in patterns for p in runner.cwd.glob(pattern) if re.search(only, p.name))

    gpu_tests = programs(r"test_cuda|test_\w+_cuda")
    model_tests = programs("test_model_files")
    cpu_tests = [p for p in programs(r"test_\w+") if p not in gpu_tests + model_tests]
    benches = programs(r"bench_\w+")
    tests, bench_results = [], []
    if "cpu" in steps:
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:  # each uses up to 3 threads
            for result, _ in pool.map(lambda p: runner.tests("cpu", p, {}), cpu_tests):
                show(result, "cpu")
                tests.append(result)
    if "gpu" in steps:
        for program in gpu_tests:
            environment = {"HEDDLE_REQUIRE_CUDA": "1", "HEDDLE_TEST_SMALL": "1" if quick else "0"}
            if runner.rounds:
                environment["HEDDLE_TEST_ROUNDS"] = str(runner.rounds)
            result, _ = runner.tests("gpu", program, environment)
            show(result, "gpu")
            tests.append(result)
    if "engine" in steps:
        for program in programs("test_engine|test_capi_engine"):
            result, _ = runner.tests("engine", program, {"HEDDLE_REQUIRE_CUDA": "1", "HEDDLE_TEST_DEVICE": "cuda"})
            show(result, "engine")
            tests.append(result)
    if "model" in steps:
        for program in model_tests:
            result, output = runner.tests("model", program, {"HEDDLE_REQUIRE_CUDA": "1", "HEDDLE_TEST_DEVICE": "cuda", **model})
            result["ties"] = re.findall(r"^near tie: (.*)$", output, re.MULTILINE)
            show(result, "model")
            tests.append(result)
    if "sanitizer" in steps:
        for program in gpu_tests:
            for tool in ("memcheck",) if quick else ("memcheck", "racecheck"):
                result = runner.sanitized(tool, program)
                show(result, tool)
                tests.append(result)
        for program in programs("test_engine"):
            result = runner.sanitized("memcheck", program, {"HEDDLE_TEST_DEVICE": "cuda", "GTEST_FILTER": SANITIZED_ENGINE_TEST})
            show(result, "memcheck")
            tests.append(result)
    if "python" in steps:
        found = files("python/tests/**/test_*_cuda.py", "src/ops/*/test/test_*_cuda.py")
        for path in found if (folder / MODEL_LOGITS).exists() else [p for p in found if p.name not in NEED_ENGINE]:
            result = runner.python_tests("python", python, path, with_package(folder))
            show(result, "python")
            tests.append(result)
    if "families" in steps:
        environment = {"HEDDLE_TEST_DEVICE": "cuda", "HEDDLE_BUILD_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        for path in files(*FAMILIES):
            result = runner.python_tests("families", python, path, environment)
            show(result, "families")
            tests.append(result)
    if "bench" in steps:
        for program in benches:
            result = runner.bench(program)
            show(result, "bench")
            bench_results.append(result)
    return tests, bench_results
