"""Which case tests which trait of which family: the table of docs/design/model_families.md.

python family_table.py prints it, with --write it goes into the page.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

from family_models import CASES, make_model, save

ROOT = pathlib.Path(__file__).parents[2]
FAMILIES = ROOT / "src" / "model" / "families"
PAGE = ROOT / "docs" / "design" / "model_families.md"
PROGRAM = pathlib.Path(os.environ.get("HEDDLE_BUILD_DIR", ROOT / "build")) / "tests" / "heddle_model_logits"
BEGIN, END = "<!-- python/tests/family_table.py writes this -->\n", "<!-- to here -->\n"

# What a statement of a family's reader can set: members of DecoderConfig, and what functions of the readers do.
SETS: dict[str, set[str]] = {
    "interleaved_qk": {"interleaved_qk"},
    "norm_before": {"norm_before"},
    "norm_after": {"norm_after"},
    "norm_adds_one": {"norm_adds_one"},
    "qk_norm": {"qk_norm"},
    "qkv_bias": {"qkv_bias"},
    "fused_qkv": {"fused_qkv"},
    "fused_gate_up": {"fused_gate_up"},
    "embedding_scale": {"embedding_scale"},
    "residual_scale": {"residual_scale"},
    "logits_scale": {"logits_scale"},
    "attention_scale": {"attention_scale"},
    "attention_soft_cap": {"attention_soft_cap"},
    "logits_soft_cap": {"logits_soft_cap"},
    "gate_activation": {"gate_activation"},
    "rotations": {"rotation: theta"},
    "kSliding": {"a rotation for some layers"},
    "kNoRotation": {"layers without rotation"},
    "scaling_is_longrope": {"rotation: long_factors", "rotation: attention_factor", "rotation: rotary_dim"},
    "read_attention_bias": {"qkv_bias", "o_bias"},
    "read_mlp_bias": {"mlp_bias"},
    "read_tied_head": {"tied_head", "own head"},
    "read_windows": {"window"},
    "read_qwen_windows": {"window"},
    # Set of the layers and of the rotation, whose own names above say it.
    "layers": set(),
}
# All families read these by the same code: one case each is enough.
OF_ALL = {
    "rms_epsilon", "gate_activation: silu", "gate_activation: gelu_pytorch_tanh", "gate_activation: gelu", "rotation: scale",
    "rotation: rotary_dim", "rotation: llama3", "rotation: yarn", "rotation: attention_factor", "rotation: dynamic",
    "rotation: factors", "rotation: long_factors",
}


def can_set(family: str) -> set[str]:
    """The traits that the reader of the family sets; what it says that is not in SETS is an error."""
    text = (FAMILIES / f"{family}.cpp").read_text()
    shared = [text]
    if family == "gemma3":
        gemma2 = (FAMILIES / "gemma2.cpp").read_text()
        shared.append(gemma2[gemma2.index("void read_gemma("):gemma2.index("namespace {")])
    traits: set[str] = set()
    for source in shared:
        said = re.findall(r"\bconfig\.(\w+) =(?!=)|\blayer\.(\w+) =(?!=)", source)
        words = {word for pair in said for word in pair if word} - {"rotation"}
        words |= set(re.findall(r"\b(read_(?:attention_bias|mlp_bias|tied_head|windows|qwen_windows))\(", source))
        words |= {word for word in ("kSliding", "kNoRotation", "scaling_is_longrope") if word in source}
        for word in words:
            traits |= SETS[word]
    return traits


def is_trait(seen: str, wanted: str) -> bool:
    """Whether a trait that the program names is the wanted one: "gate_activation: silu" is "gate_activation"."""
    return seen == wanted or seen.startswith(wanted + ": ")


def run_case(path: pathlib.Path) -> Any:
    result = subprocess.run([PROGRAM, path], input="[]", capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@functools.cache
def traits_of_cases() -> dict[str, dict[str, list[str]]]:
    """By family and trait the cases that set it, "case" in a folder and "case (GGUF)"."""
    from family_gguf import write_gguf

    found: dict[str, dict[str, list[str]]] = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model = make_model(case, 0)
            results = {case.name: run_case(save(model, folder / "model"))}
            if case.gguf:
                results[f"{case.name} (GGUF)"] = run_case(write_gguf(model, case.gguf, folder / "model.gguf"))
        # Where GGUF has the family under another name it is of the folder's.
        family = results[case.name]["family"]
        for label, result in results.items():
            for trait in result["traits"]:
                found.setdefault(family, {}).setdefault(trait, []).append(label)
    return found


def missing(found: dict[str, dict[str, list[str]]]) -> list[str]:
    """Traits of families that no case sets."""
    problems = []
    for path in sorted(FAMILIES.glob("*.cpp")):
        family = path.stem
        if family in ("families", "family", "wrappers"):
            continue
        seen = found.get(family, {})
        problems += [
            f"{family}: {trait}" for trait in sorted(can_set(family)) if not any(is_trait(other, trait) for other in seen)
        ]
    everywhere = {trait for traits in found.values() for trait in traits}
    return problems + [f"any family: {trait}" for trait in sorted(OF_ALL - everywhere)]


def table(found: dict[str, dict[str, list[str]]]) -> str:
    lines = ["| family | trait | folders | GGUF |", "|---|---|---|---|"]
    for family in sorted(found):
        for trait, cases in found[family].items():
            folders = [case for case in cases if not case.endswith("(GGUF)")]
            files = [case.removesuffix(" (GGUF)") for case in cases if case.endswith("(GGUF)")]
            lines.append(f"| {family} | {trait} | {shortened(folders)} | {shortened(files)} |")
    return "\n".join(lines) + "\n"


def shortened(cases: list[str]) -> str:
    """The first two, and how many more."""
    more = f" and {len(cases) - 2} more" if len(cases) > 2 else ""
    return (", ".join(cases[:2]) + more) or "-"


def page_with(text: str, rows: str) -> str:
    """The page's text with the table between its marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{rows}{END}{rest.split(END)[1]}"


def main() -> None:
    found = traits_of_cases()
    print(table(found), end="")
    if "--write" in sys.argv:
        PAGE.write_text(page_with(PAGE.read_text(), table(found)))
    if problems := missing(found):
        sys.exit("no case sets " + "; ".join(problems))


if __name__ == "__main__":
    main()
