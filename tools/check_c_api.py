#!/usr/bin/env python3
"""Every function of include/heddle/ops has a C function of its name in c_api.h or c_linear_site.h, and every overload has one of its own, but for NOT_IN_C;
every C function is called by the tests in src/capi/test, most by a row of their table; and what heddle::Engine does, takes and reports is in c_engine.h,
but for NOT_IN_C_ENGINE."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE, C_TESTS = ROOT / "include/heddle", ROOT / "src/capi/test"
# A declaration at the margin; what is in a class or continues a line is indented.
CPP = re.compile(r"^(?:\[\[nodiscard\]\] )?(?:inline |constexpr )*[\w:]+(?:<\w+>)?[&*]? (\w+)\(", re.M)
C = re.compile(r"\bheddle_(\w+)\(")
# What C calls the second and third function of a name, which C++ overloads.
OVERLOADS = {
    "embedding": ["packed_embedding"],
    "linear": ["linear_many"],
    "lora_expand": ["lora_expand_table"],
    "lora_shrink": ["lora_shrink_table"],
    "rope": ["rope_positions"],
}

# What only the engine uses so far; docs/c_interface.md says so.
NOT_IN_C = {"add", "scale", "soft_cap", "round_to", "sum_rows", "take_drawn_tokens", "mask_logits", "quantize", "can_quantize", "check_rope_params", "yarn_attention_factor",
            "linear_with_adapters", "linear_workspace_bytes", "apply_affines", "replace_rows", "add_low_rank_rows", "divide_by_lengths", "linear_at"}

# Functions of heddle::Engine and fields of its structs under other names in C, and those that C does without: the thread of a C engine
# steps by itself, and the sentence of ended_by is the error of every completion.
IN_C_ENGINE = {"replace_adapter": "add_adapter", "model": "get_model", "load": "get_load", "stats": "get_stats", "options": "get_model", "step": "poll",
               "model_path": "create"}
NOT_IN_C_ENGINE = {"check", "encode", "encode_each", "labels", "tokenizer", "set_paused", "prepare_adapter", "stage_adapter", "check_adapter", "needs_copy", "begin_copy", "wait_for_copy", "render", "adapter_states", "row_progress", "num_unfinished", "tokenize", "prompt_logits", "adapter_names", "ended_by"}
# What only the server requests: tokens with the events, and their texts, and receipts as weights are read, and the folder of what it fetches. Of the load, what the events of a C engine tell, and copies of adapters.
NOT_IN_C_STRUCTS = {"tell_tokens", "tokens", "token_texts", "prompt_token_ids", "num_ended", "num_host_adapters", "host_adapter_bytes", "on_receipt", "fetched_adapter_dir"}
STRUCTS = {"EngineOptions": "heddle_engine_options", "Request": "heddle_engine_request", "SamplingOptions": "heddle_engine_request",
           "RequestVariant": "heddle_engine_variant", "ThinkingLimit": "heddle_thinking_limit", "Message": "heddle_message", "Completion": "heddle_engine_event", "Event": "heddle_engine_event",
           "EngineLoad": "heddle_engine_load", "EngineStats": "heddle_engine_stats",
           "SpeculationOptions": "heddle_speculation", "DraftCounts": "heddle_draft_counts", "DraftStats": "heddle_draft_stats"}
NOT_FIELDS = {"model_path": "an argument", "sampling": "its fields", "completion": "its fields"}


def body_of(text, head):
    """The text between the braces that follow `head`."""
    start = text.index(head) + len(head)
    return text[start:text.index("\n}", start)]


def fields_of(body):
    """Names of the fields of a C or C++ struct, without comments and functions."""
    body = re.sub(r"//[^\n]*|/\*.*?\*/|\{\}|\[\w+\]", "", body, flags=re.DOTALL)
    body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r" \1", body)  # a pointer to a function
    statements = [re.sub(r"=[^,;]*", "", re.sub(r"<[^;]*>", "", s)) for s in body.split(";")]
    return {name for s in statements for name in re.findall(r"(\w+)\s*(?:,|$)", s.strip())}


def engine_problems():
    cpp = "".join((INCLUDE / "engine" / name).read_text() for name in ("engine.h", "request.h", "speculation.h"))
    c = "".join((INCLUDE / name).read_text() for name in ("c_engine.h", "c_engine_parts.h"))
    functions = set(re.findall(r"\bheddle_engine_(\w+)\(", c))
    public = body_of(cpp, "class Engine {").split(" private:")[0]
    names = set(re.findall(r"^  (?:\[\[nodiscard\]\] )?[\w:<>&, ]+[ &](\w+)\(", public, re.MULTILINE)) - {"operator"}
    problems = [f"no function for Engine::{name} in c_engine.h" for name in sorted(names - NOT_IN_C_ENGINE - {"Engine"})
                if IN_C_ENGINE.get(name, name) not in functions]
    for struct, in_c in STRUCTS.items():
        body = body_of(c, f"typedef struct {in_c} {{")
        wanted = fields_of(body_of(cpp, f"struct {struct} {{")) - NOT_FIELDS.keys() - NOT_IN_C_STRUCTS
        assert len(wanted) > 1 or struct == "Event", (struct, wanted)
        told = fields_of(body) | ({"answer"} if "answer" in body else set())
        problems += [f"no field for {struct}::{name} in {in_c}" for name in sorted(wanted - told)]
    assert len(names) > 10, names
    return problems


def main():
    has = {name for header in ("c_api.h", "c_linear_site.h") for name in C.findall((INCLUDE / header).read_text())}
    names = [name for header in sorted((INCLUDE / "ops").glob("*.h")) for name in CPP.findall(header.read_text())]
    tests = "".join(re.sub(r"//[^\n]*", "", path.read_text()) for path in C_TESTS.rglob("*") if path.suffix in (".h", ".cpp"))
    missing = engine_problems() + [f"no test of heddle_{c} in src/capi/test" for c in sorted(has - set(re.findall(r"\bheddle_(\w+)", tests)))]
    for name in sorted(set(names) - NOT_IN_C):
        wanted = [name, *OVERLOADS.get(name, [])]
        missing += [f"no heddle_{c} for {name}" for c in wanted if c not in has]
        if names.count(name) != len(wanted):
            missing.append(f"{name} has {names.count(name)} overloads, the list of this check {len(wanted)}")
    print("\n".join(missing) or f"{len(names)} functions, all but {len(NOT_IN_C)} in C")
    return 1 if missing or not names else 0


if __name__ == "__main__":
    sys.exit(main())
