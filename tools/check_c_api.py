#!/usr/bin/env python3
"""Every function of include/heddle/ops has a C function of its name in c_api.h, and every overload has one of its own, but for NOT_IN_C."""

import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "include/heddle"
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

# What the engine alone uses so far; docs/c_interface.md says so.
NOT_IN_C = {"add", "scale", "soft_cap", "quantize", "can_quantize", "check_rope_params", "yarn_attention_factor"}


def main():
    has = set(C.findall((INCLUDE / "c_api.h").read_text()))
    names = [name for header in sorted((INCLUDE / "ops").glob("*.h")) for name in CPP.findall(header.read_text())]
    missing = []
    for name in sorted(set(names) - NOT_IN_C):
        wanted = [name, *OVERLOADS.get(name, [])]
        missing += [f"no heddle_{c} for {name}" for c in wanted if c not in has]
        if names.count(name) != len(wanted):
            missing.append(f"{name} has {names.count(name)} overloads, the list of this check {len(wanted)}")
    print("\n".join(missing) or f"{len(names)} functions, all but {len(NOT_IN_C)} in C")
    return 1 if missing or not names else 0


if __name__ == "__main__":
    sys.exit(main())
