"""The table of kinds of adapters by family on the page of adapters: kind_table.py [--write]."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from adapter_refusals import REFUSALS
from every_kind import KINDS
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


def families_of(of_kind: dict[str, bool]) -> str:
    missing = sorted(family for family, has in of_kind.items() if not has)
    return f"all but {', '.join(missing)}" if missing else "all"


def table() -> str:
    kinds_by_families: dict[str, list[str]] = {}
    for kind, of_kind in families_of_kinds().items():
        kinds_by_families.setdefault(families_of(of_kind), []).append(kind)
    lines = ["| kinds that equal PEFT | in models of |", "| --- | --- |"]
    lines += [f"| {'; '.join(kinds)} | {families} |" for families, kinds in kinds_by_families.items()]
    lines += ["", "| kinds that are refused by name | in models of |", "| --- | --- |",
              f"| {'; '.join(refusal.name for refusal in REFUSALS)} | all |"]
    return "".join(f"{line}\n" for line in lines)


def page_with(page: str, fresh: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + fresh + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    changed = page_with(PAGE.read_text(), table())
    if "--write" in sys.argv[1:]:
        PAGE.write_text(changed)
    else:
        print(table(), end="")
