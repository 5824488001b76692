#!/usr/bin/env python3
"""Layers point down only: fails where a file includes what its folder may not. The rules are the table LAYERS.

tools/check_includes.py              checks the tree
tools/check_includes.py --self-test  checks the checker on includes that it must accept and refuse
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)

# Third-party headers by their first path part; a header that is in no line and has no dot or slash is the standard library's, and
# so are those of C that the C interface may need.
LIBRARIES = {
    "stdbool.h": "std", "stddef.h": "std", "stdint.h": "std",
    "hwy": "highway", "gtest": "gtest", "gmock": "gtest", "benchmark": "benchmark", "nlohmann": "json",
    "pcre2.h": "pcre2", "utf8proc.h": "utf8proc", "CLI": "cli11", "spdlog": "spdlog", "xxhash.h": "xxhash", "histedit.h": "edit", "dlpack": "dlpack",
    "xgrammar": "xgrammar", "nanobind": "nanobind", "Python.h": "python", "boost": "boost", "curl": "curl", "openssl": "openssl", "prometheus": "prometheus",
    "toml++": "toml",
    "cub": "cuda", "thrust": "cuda", "cooperative_groups": "cuda", "cooperative_groups.h": "cuda", "mma.h": "cuda",
}

# What reads and writes JSON, the one place of its library.
JSON = ["src/files/json.h", "src/files/json_text.h", "src/files/json_tree.h", "src/files/json_value.h"]

# folder: (folders it may include besides itself, libraries it may include). The first entry that matches a file's folder
# counts. "own headers" are heddle/ops/<family>.h and what that header includes; "system" are headers of the platform.
# An op's adapters to C and Python, src/ops/.../X_c.cpp and X_python.cpp, have layers of their own: they see what their users see. Those of
# the engine see its thread besides.
LAYERS = {
    "include/heddle/core": ([], []),
    "include/heddle/ops": (["include/heddle/core"], []),
    "include/heddle/engine": (["include/heddle/core"], []),
    "include/heddle": (["include/heddle/core", "include/heddle/ops"], ["dlpack"]),
    "src/core": (["include/heddle"], ["xxhash", "system"]),
    "src/cpu": (["include/heddle/core", "src/core"], ["highway", "system"]),
    "src/cuda": (["include/heddle/core", "include/heddle/config.h", "src/core"], ["cuda", "system"]),
    "X_c": (["include/heddle", "src/capi", "src/engine/thread/engine_thread.h", "src/engine/test", "src/engine/bindings",
             "src/files/printable.h"], ["dlpack"]),
    "X_python": (["include/heddle", "python/bindings", "src/engine/thread/engine_thread.h", "src/ops/lora/adapter_table_python.h",
                   "src/ops/lora/lora_batch_python.h", "src/engine/bindings/request_python.h", "src/answers/answer_style.h"],
                 ["nanobind", "python", "system"]),
    # What the ops with adapters share: tables, plans, checks, device code. These ops see the floor and the public headers, not each other.
    "src/ops/lora_device": (["include/heddle/core", "include/heddle/config.h", "include/heddle/ops/lora.h", "include/heddle/ops/lora_table.h",
                             "src/core", "src/cpu", "src/cuda"], ["highway", "cuda", "system"]),
    "src/ops/lora": (["own headers", "include/heddle/core", "include/heddle/config.h", "src/core", "src/cpu", "src/cuda", "src/ops/lora_device"],
                     ["highway", "cuda", "system"]),
    # Products with the adapters inside: the floor, and linear's packed blocks.
    "src/ops/linear_site": (["own headers", "include/heddle/core", "include/heddle/config.h", "src/core", "src/cpu", "src/cuda",
                             "src/ops/lora_device", "src/ops/linear"],
                            ["highway", "cuda", "system"]),
    "src/ops/adapter_parts": (["own headers", "include/heddle/core", "include/heddle/config.h", "include/heddle/ops/lora_table.h", "src/core", "src/cpu",
                               "src/cuda", "src/ops/lora_device/checks"], ["cuda"]),
    "src/ops": (["own headers", "include/heddle/core", "include/heddle/config.h", "src/core", "src/cpu", "src/cuda"],
                ["highway", "cuda", "system"]),
    "src/files": (["include/heddle/core", "include/heddle/ops/linear.h"], ["boost", "system"]),
    "src/tokenizer": (["include/heddle/core", "src/files/printable.h", *JSON], ["pcre2", "utf8proc"]),
    "src/chat_template/values": (["include/heddle/core", "src/files/printable.h", "src/files/json.h", "src/files/json_value.h"], []),
    "src/chat_template/syntax": (["include/heddle/core", "src/files/printable.h", "src/chat_template/values"], []),
    "src/chat_template/interpreter": (["include/heddle/core", "src/files/printable.h", "src/files/json.h", "src/files/json_value.h",
                                       "src/chat_template/values", "src/chat_template/syntax"], []),
    "src/chat_template/library": (["include/heddle/core", "src/files/printable.h", "src/chat_template/values",
                                   "src/chat_template/syntax", "src/chat_template/interpreter"], []),
    "src/chat_template": (["include/heddle/core", "src/files/printable.h", *JSON], []),
    "src/answers": (["include/heddle/core", "include/heddle/engine", "src/files/printable.h", *JSON], []),
    "src/model": (["include/heddle/core", "include/heddle/ops", "src/core", "src/files", "src/tokenizer",
                   "src/chat_template"],
                  ["pcre2"]),
    "src/engine/cache": (["include/heddle", "src/core", "src/model", "src/files"], ["boost", "system"]),
    # The one source that includes the library of grammars.
    "src/engine/rules/xgrammar": (["include/heddle", "src/engine/rules/grammar", "src/files", "src/answers/call_grammar.h"], ["xgrammar"]),
    "src/engine": (["include/heddle", "src/core", "src/model", "src/files", "src/tokenizer", "src/chat_template",
                    "src/answers"],
                   ["system"]),
    "src/capi": (["include/heddle"], ["dlpack", "system"]),
    "src/testing": (["include/heddle/core", "src/core/math.h", "src/cuda", *JSON], ["highway", "gtest", "json", "cuda", "system"]),
    "python": (["include/heddle", "src/core/device_bytes.h"], ["nanobind", "python", "dlpack", "system"]),
    "apps/fetch": (["include/heddle/core", "src/files/printable.h", "src/files/percent.h", "src/model/source/hub_cache.h", *JSON],
                   ["curl", "openssl", "system"]),
    "apps/request_json": (["include/heddle/core", "include/heddle/engine", "src/files/edit_distance.h", *JSON], []),
    "apps/heddle-serve": (["include/heddle", "apps/heddle", "apps/fetch", "apps/request_json", "src/files/percent.h", "src/files/bounded_open.h",
                            *JSON, "src/answers", "src/engine/thread", "src/engine/face/made_engine.h"],
                          ["cli11", "spdlog", "boost", "openssl", "prometheus", "toml", "system"]),
    "apps/heddle-bench": (["include/heddle", "apps/heddle", "src/core", "src/engine/face/made_engine.h", "src/engine/runner/engine_context.h",
                            "src/engine/cache", "src/engine/rows/scheduler.h", "src/engine/runner/model_runner.h",
                            "src/engine/face/engine_options.h", "src/engine/options/available_memory.h", "src/engine/options/weight_options.h", "src/files", "src/model/weights",
                            "src/model/source", "src/cuda/check.h", "src/testing/bench/plain_reads_cuda.h"],
                          ["cli11", "spdlog", "json", "benchmark", "cuda", "system"]),
    "apps": (["include/heddle", "src/core/digest.h", "src/files/edit_distance.h", *JSON], ["cli11", "spdlog", "edit", "system"]),
    "examples": (["include/heddle"], []),
    "tests": (["include/heddle", "src"], ["gtest", "json", "dlpack", "system"]),
}

# The inner order of a folder: a room of it may include itself and those named here; op families and rooms that are not in the table
# are refused. "." are the files that lie in the folder itself. Tests, benches and adapters may include all.
ROOMS = {
    "src/engine": {
        "cache": [], "options": [], "drafts": [],
        "text": ["options"],
        "rules": ["text"],
        "rows": ["cache", "text", "rules", "drafts"],
        "runner": ["cache", "options", "rules", "rows"],
        "adapters": ["text", "rows", "runner"],
        "drafters": ["cache", "options", "drafts", "text", "rows", "runner", "adapters"],
        "face": ["cache", "options", "drafts", "text", "rules", "rows", "runner", "adapters", "drafters"],
        "thread": ["rows"],
        "bindings": ["thread"],
    },
    "src/ops/attention": {
        "rope": [], "paged": [], "call": [],
        "device": ["rope", "paged", "call"],
        "decode": ["rope", "paged", "call", "device"],
        "prefill": ["rope", "paged", "call", "device"],
        "cpu": ["rope", "paged", "call", "device"],
        "run": ["rope", "paged", "call", "device", "decode", "prefill", "cpu"],
        "kv_append": ["rope", "paged", "call", "device", "decode", "prefill", "cpu"],
        "merge_states": ["rope", "paged", "call", "device", "decode", "prefill", "cpu"],
        ".": ["rope", "paged", "call", "device", "decode", "prefill", "cpu", "run", "kv_append", "merge_states"],
    },
    "src/model": {
        "config": [],
        ".": ["config"],
        "families": ["config"],
        "source": ["config", "families", "."],
        "weights": ["config"],
        "eagle3": ["config", "families", "source", "weights", "."],
        "adapters": ["config", "families", "source", "weights", "."],
        "decoder": ["config", "weights", "adapters"],
    },
    # "." has the numbers and structs of all kernels, and the loads, products and outputs that they share.
    "src/ops/lora_device": {
        ".": [],
        "checks": [],
        "table": [],
        "plan": [".", "checks"],
        "call": [".", "table"],
        "cpu": ["checks", "call"],
        "grouped": [".", "table", "plan", "call"],
    },
    "src/ops/linear_site": {
        "call": [],
        "general": ["call"],
        "decode": ["call"],
        "packed": ["call", "decode"],
        "prompt": ["call"],
        "portable": ["call", "prompt"],
        "cpu": ["call"],
        "run": ["call", "general", "decode", "packed", "prompt", "portable"],
        ".": ["call"],
    },
    "src/ops/linear": {"format": [], "pack": ["format"], "cpu": ["format"], "unpack": ["format"], ".": ["format", "cpu", "unpack"]},
    "src/ops/sampling": {"draw": [], "sample": ["draw"], "adjust": [], "take": [], "mask": [], ".": ["draw", "sample"]},
    "src/ops/metadata": {".": [], "conversions": ["."], "prepare_batch": [".", "conversions"]},
    "src/ops/speculation": {
        "call": [],
        "shared": ["call"],
        "lanes": ["call", "shared"],
        "propose_ngram_drafts": ["shared"],
        "prepare_next_forward_pass": ["call", "shared", "lanes"],
        "rewind_kv_cache": ["call", "shared", "lanes"],
        "verify_speculative_tokens": ["call", "shared", "lanes"],
        "speculative_step": ["call", "shared", "lanes", "verify_speculative_tokens"],
        ".": [],
    },
    **{f"src/ops/{flat}": {".": []} for flat in ("activation", "adapter_parts", "elementwise", "embedding", "mamba", "norm", "rope", "verify")},
    "src/ops/lora": {
        "fused": [], "halves": [], "grouped": [],
        "run": ["fused", "halves"],
        "pairs": ["."],
        ".": ["run"],
    },
}

# Tests, benches and references may also use the test tools, every public op, to compare one with another, and the cases of other families.
TEST_FILE = re.compile(r"/(test|bench)/|^python/tests/")
TEST_EXTRA = (["src/testing", "include/heddle"], ["gtest", "benchmark", "highway", "json", "system"])
ADAPTER = re.compile(r"^src/(?:ops|engine)/.*(_c|_python)(_cuda_test|_test)?[.](?:h|cpp)$")


def is_within(path, folder):
    return path == folder or path.startswith(folder + "/")


def library_of(header):
    part = header.split("/")[0]
    if part in LIBRARIES:
        return LIBRARIES[part]
    if part.startswith(("cuda", "cublas")):
        return "cuda"
    return "std" if not re.search(r"[./]", header) else "system"


def resolve(path, header, files):
    """The file of the tree that `header` means in a file at `path`, None for one outside."""
    folders = [path.rsplit("/", 1)[0], "include", "src", "src/testing", "apps", "apps/heddle", "apps/heddle-serve", "python"]
    for folder in folders:
        if f"{folder}/{header}" in files:
            return f"{folder}/{header}"
    if header == "page_files.h":  # which CMake writes
        return "apps/heddle-serve/page/page_files.h"
    return "include/heddle/config.h" if header == "heddle/config.h" else None


def own_headers(path, files):
    header = f"include/heddle/ops/{path.split('/')[2]}.h"
    return [header] + [f"include/{h}" for _, h in INCLUDE.findall(files.get(header, ""))]


def layer_of(path):
    adapter = ADAPTER.match(path)
    return f"X{adapter[1]}" if adapter else next((folder for folder in LAYERS if is_within(path, folder)), None)


def are_of_one_room(path, target):
    """Whether both are in one layer; a family's folder is a layer of its own: it does not see other families."""
    if not path.startswith("src/ops/"):
        return is_within(target, layer_of(path))
    is_visible = layer_of(target) == layer_of(path) or TEST_FILE.search(path)
    return is_visible and is_within(target, "/".join(path.split("/")[:3]))


def room_of(path, folder):
    rest = path[len(folder) + 1:]
    return rest.split("/")[0] if "/" in rest else "."


def room_refusal(path, target):
    """Why a file of a folder with rooms may not include `target` of the same folder; None where it may. Every op family has rooms."""
    folder = next((f for f in ROOMS if is_within(path, f)), None)
    if folder is None and path.startswith("src/ops/"):
        folder = "/".join(path.split("/")[:3])
    if folder is None or not is_within(target, folder) or TEST_FILE.search(path) or ADAPTER.match(path):
        return None
    if folder not in ROOMS:
        return f"{folder} is in no line of ROOMS"
    rooms, own, other = ROOMS[folder], room_of(path, folder), room_of(target, folder)
    if own not in rooms or other not in rooms:
        return f"{folder}/{own if own not in rooms else other} is in no line of ROOMS"
    return None if other in (own, *rooms[own]) else f"{folder}/{own} may not use {target}"


def circles(rooms):
    """Rooms that reach themselves, which have no order."""
    below = {room: set(others) for room, others in rooms.items()}
    for _ in rooms:
        below = {room: others.union(*(below[o] for o in others)) for room, others in below.items()}
    return [room for room, others in below.items() if room in others]


def refusal(path, quote, header, files):
    """Why the file at `path` may not include `header`; None where it may. files: text of every file by path."""
    layer = layer_of(path)
    if layer is None:
        return "its folder is in no line of LAYERS"
    folders, libraries = LAYERS[layer]
    if "own headers" in folders:
        folders = folders + own_headers(path, files)
    if TEST_FILE.search(path):
        folders, libraries = folders + TEST_EXTRA[0], libraries + TEST_EXTRA[1]
    target = resolve(path, header, files)
    if target is None:
        library = library_of(header)
        if quote == '"' and library in ("std", "system"):
            return "there is no such file"
        return None if library in ["std", *libraries] else f"{layer} may not use {library}"
    if TEST_FILE.search(path) and TEST_FILE.search(target) and is_within(target, "src/ops"):
        return None
    if not are_of_one_room(path, target) and not any(is_within(target, folder) for folder in folders):
        return f"{layer} may not use {target}"
    return room_refusal(path, target)


def violations(files):
    for path, text in sorted(files.items()):
        for quote, header in INCLUDE.findall(text):
            reason = refusal(path, quote, header, files)
            if reason:
                yield f'{path}: includes "{header}": {reason}'


def read_tree():
    folders = sorted({layer.split("/")[0] for layer in LAYERS})
    paths = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in (".h", ".cpp", ".cu")]
    return {str(p.relative_to(ROOT)): p.read_text() for p in paths}


def self_test():
    tree = {
        "include/heddle/core/error.h": "",
        "include/heddle/ops/lora.h": '#include "heddle/core/error.h"\n',
        "include/heddle/ops/norm.h": "",
        "include/heddle/ops/attention.h": '#include "heddle/ops/norm.h"\n',
        "include/heddle/engine/engine.h": "",
        "src/cpu/vec-inl.h": "",
        "src/cuda/check.h": "",
        "src/ops/lora/lora_kernels.h": "",
        "src/ops/lora/table_python.h": "",
        "src/ops/norm/norm_c.h": "",
        "src/capi/guard.h": "",
        "python/bindings/call.h": "",
        "src/ops/lora_device/sums.h": "",
        "src/ops/lora_device/plan/make_plan.h": "",
        "src/ops/lora_device/grouped/grouped_params.h": "",
        "src/ops/lora/test/lora_cases.h": "",
        "src/ops/lora/fused/aligned_cuda.h": "",
        "src/ops/lora/run/select_kernel.h": "",
        "src/ops/norm/norm_kernels.h": "",
        "src/ops/new_op/x.h": "",
        "src/ops/attention/paged/pages.h": "",
        "src/ops/attention/decode/launch.h": "",
        "src/engine/rows/sequence.h": "",
        "src/engine/runner/model_runner.h": "",
        "src/model/gguf.h": "",
        "src/testing/random.h": "",
    }
    accepted = [
        ("include/heddle/ops/lora.h", "<vector>"),
        ("src/core/thread_pool.cpp", "<immintrin.h>"),
        ("src/ops/lora/lora.cpp", '"heddle/ops/lora.h"'),
        ("src/ops/lora/lora.cpp", '"lora_kernels.h"'),
        ("src/ops/lora/lora.cpp", '"ops/lora/lora_kernels.h"'),
        ("src/ops/lora/lora_cpu.cpp", '"hwy/highway.h"'),
        ("src/ops/lora/lora_cpu.cpp", '"cpu/vec-inl.h"'),
        ("src/ops/lora/lora_cuda.cu", '"cuda/check.h"'),
        ("src/ops/lora/lora_cuda.cu", "<cuda_fp16.h>"),
        ("src/ops/lora/bench/lora_bench_cuda.h", '"testing/random.h"'),
        ("src/ops/lora/lora_sm90.cu", "<cooperative_groups.h>"),
        ("src/ops/lora/test/lora_cuda_test.cu", '"random.h"'),
        ("src/ops/lora/test/lora_test.cpp", '"random.h"'),
        ("src/ops/lora/test/lora_test.cpp", '"heddle/ops/norm.h"'),
        ("src/ops/lora/fused/aligned_cuda.cu", '"ops/lora_device/sums.h"'),
        ("src/ops/lora_device/grouped/shrink.cu", '"ops/lora_device/plan/make_plan.h"'),
        ("src/ops/linear_site/run/run_cuda.cpp", '"ops/lora_device/plan/make_plan.h"'),
        ("src/ops/linear_site/test/linear_site_test.cpp", '"ops/lora/test/lora_cases.h"'),
        ("src/ops/lora/fused/aligned_cuda.cu", '"ops/lora/fused/aligned_cuda.h"'),
        ("src/ops/lora/lora.cpp", '"ops/lora/run/select_kernel.h"'),
        ("src/ops/lora/test/lora_test.cpp", '"ops/lora/fused/aligned_cuda.h"'),
        ("src/ops/attention/attention.cpp", '"heddle/ops/norm.h"'),
        ("src/ops/lora/lora_c.cpp", '"capi/guard.h"'),
        ("src/ops/lora/lora_c.cpp", '"heddle/ops/norm.h"'),
        ("src/capi/test/rows/lora_rows.cpp", '"heddle/ops/lora.h"'),
        ("src/ops/lora/lora_python.cpp", "<nanobind/nanobind.h>"),
        ("src/ops/lora/lora_python.cpp", '"bindings/call.h"'),
        ("src/ops/lora/lora_python.cpp", '"ops/lora/table_python.h"'),
        ("src/ops/attention/attention.cpp", '"ops/attention/decode/launch.h"'),
        ("src/ops/attention/decode/kernel_cuda.h", '"ops/attention/decode/launch.h"'),
        ("src/ops/attention/decode/kernel_cuda.h", '"ops/attention/paged/pages.h"'),
        ("src/ops/attention/test/decode_test.cpp", '"ops/attention/decode/launch.h"'),
        ("src/model/llama.cpp", '"heddle/ops/norm.h"'),
        ("src/files/json_tree.cpp", "<boost/json/value.hpp>"),
        ("src/model/test/adapter_test.cpp", "<nlohmann/json.hpp>"),
        ("src/engine/face/engine.cpp", '"model/gguf.h"'),
        ("src/engine/runner/model_runner.h", '"engine/rows/sequence.h"'),
        ("src/engine/rows/test/row_queue_test.cpp", '"engine/runner/model_runner.h"'),
        ("src/engine/test/engine_test.cpp", '"engine/runner/model_runner.h"'),
        ("apps/heddle/main.cpp", '"heddle/engine/engine.h"'),
        ("tests/golden_test.cpp", '"model/gguf.h"'),
        ("include/heddle/c_api.h", "<stdint.h>"),
        ("include/heddle/c_api.h", "<dlpack/dlpack.h>"),
    ]
    refused = [
        ("include/heddle/core/check.h", '"heddle/ops/lora.h"'),
        ("include/heddle/core/check.h", "<cuda_runtime.h>"),
        ("include/heddle/ops/lora.h", "<hwy/highway.h>"),
        ("include/heddle/ops/lora.h", "<sys/mman.h>"),
        ("include/heddle/ops/lora.h", '"ops/lora/lora_kernels.h"'),
        ("include/heddle/ops/lora.h", '"heddle/engine/engine.h"'),
        ("src/core/dtype.cpp", '"cpu/vec-inl.h"'),
        ("src/cpu/vec-inl.h", '"heddle/ops/lora.h"'),
        ("src/cpu/vec-inl.h", "<cuda_runtime_api.h>"),
        ("src/core/device.cpp", '"cuda/check.h"'),
        ("src/cuda/check.h", '"heddle/ops/lora.h"'),
        ("src/ops/lora/lora.cpp", '"heddle/ops/norm.h"'),
        ("src/ops/lora/lora.cpp", '"ops/norm/norm_kernels.h"'),
        ("src/ops/lora/lora.cpp", '"model/gguf.h"'),
        ("src/ops/lora/lora.cpp", '"random.h"'),
        ("src/ops/lora/lora.cpp", '"missing.h"'),
        ("src/ops/lora/lora.cpp", '"capi/guard.h"'),
        ("src/ops/lora/lora.cpp", '"ops/lora/table_python.h"'),
        ("src/ops/lora/lora_c.cpp", '"ops/lora/lora_kernels.h"'),
        ("src/ops/lora/lora_c.cpp", '"ops/norm/norm_c.h"'),
        ("src/ops/lora/lora_c.cpp", '"bindings/call.h"'),
        ("src/ops/lora/lora_python.cpp", '"cpu/vec-inl.h"'),
        ("src/ops/lora/test/lora_test.cpp", '"capi/guard.h"'),
        ("src/ops/lora/halves/halves_cuda.cu", '"ops/lora/fused/aligned_cuda.h"'),
        ("src/ops/lora_device/shrink_tile_cuda.h", '"ops/lora/run/select_kernel.h"'),
        ("src/ops/lora_device/plan/plan_cuda.cu", '"ops/lora_device/grouped/grouped_params.h"'),
        ("src/ops/linear_site/run/run_cuda.cpp", '"ops/lora/run/select_kernel.h"'),
        ("src/ops/linear_site/run/run_cuda.cpp", '"ops/lora/test/lora_cases.h"'),
        ("src/ops/norm/norm.cpp", '"ops/lora_device/sums.h"'),
        ("src/ops/lora/lora.cpp", '"ops/lora/fused/aligned_cuda.h"'),
        ("src/ops/lora/other/x.cpp", '"ops/lora/run/select_kernel.h"'),
        ("src/ops/lora/test/lora_test.cpp", '"ops/norm/norm_kernels.h"'),
        ("src/ops/attention/paged/walk.h", '"ops/attention/decode/launch.h"'),
        ("src/ops/attention/prefill/tile_cuda.h", '"ops/attention/decode/launch.h"'),
        ("src/ops/new_op/x.cpp", '"ops/new_op/x.h"'),
        ("src/ops/attention/elsewhere/x.h", '"ops/attention/paged/pages.h"'),
        ("src/model/llama.cpp", '"cpu/vec-inl.h"'),
        ("src/model/llama.cpp", '"ops/lora/lora_kernels.h"'),
        ("src/model/llama.cpp", '"heddle/engine/engine.h"'),
        ("src/engine/face/engine.cpp", "<boost/json/value.hpp>"),
        ("src/engine/rows/sequence.h", '"engine/runner/model_runner.h"'),
        ("src/engine/elsewhere/x.cpp", '"engine/rows/sequence.h"'),
        ("src/engine/x.cpp", '"engine/rows/sequence.h"'),
        ("src/model/adapter.cpp", "<nlohmann/json.hpp>"),
        ("apps/heddle/main.cpp", "<nlohmann/json.hpp>"),
        ("apps/heddle/main.cpp", '"model/gguf.h"'),
        ("examples/cpp/site.cpp", '"cpu/vec-inl.h"'),
        ("elsewhere/x.cpp", "<vector>"),
    ]
    wrong = [f"ROOMS of {folder}: {room} is in a circle" for folder, rooms in ROOMS.items()
             for room in circles(rooms)]
    for cases, expected in ((accepted, 0), (refused, 1)):
        for path, header in cases:
            files = {**tree, path: tree.get(path, "") + f"#include {header}\n"}
            if len(list(violations(files))) != expected:
                wrong.append(f"{path} with #include {header} should be {'refused' if expected else 'accepted'}")
    return wrong, f"self-test: {len(accepted)} includes accepted, {len(refused)} refused"


def main():
    if sys.argv[1:] == ["--self-test"]:
        problems, summary = self_test()
    else:
        files = read_tree()
        problems, summary = list(violations(files)), f"{len(files)} files keep the layer rules"
    print("\n".join(problems) or summary)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
