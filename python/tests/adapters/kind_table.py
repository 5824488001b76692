"""The table of kinds of adapters by family on the page of adapters: kind_table.py [--write]."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from adapter_kinds import KINDS
from family_models import CASES, make_model

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "adapters.md"
BEGIN, END = "<!-- python/tests/adapters/kind_table.py writes this -->\n", "<!-- to here -->\n"


def families_of_kinds() -> dict[str, dict[str, bool]]:
    """By kind and family: whether the kind is compared on a model of the family; else PEFT has no such adapter for it."""
    found: dict[str, dict[str, bool]] = {kind.name: {} for kind in KINDS}
    for case in CASES:
        family = case.model.removesuffix("ForCausalLM").lower()
        model: Any = make_model(case, 0)
        for kind in KINDS:
            found[kind.name][family] = found[kind.name].get(family, False) or kind.needs(model)
    return found


def table() -> str:
    found = families_of_kinds()
    families = sorted(next(iter(found.values())))
    lines = [["kind", *families], ["---"] * (len(families) + 1)]
    lines += [[kind, *("yes" if of_kind[family] else "-" for family in families)] for kind, of_kind in found.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page_with(page: str, fresh: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + fresh + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    changed = page_with(PAGE.read_text(), table())
    if "--write" in sys.argv[1:]:
        PAGE.write_text(changed)
    else:
        print(table(), end="")
