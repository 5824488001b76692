"""The example adapters, and prompts whose answers are known, for the tests of heddle.LLM."""

from __future__ import annotations

import pathlib

ROOT = pathlib.Path(__file__).parents[3]
ADAPTERS = {name: ROOT / "examples" / "adapters" / name for name in ("opposite", "slug", "sql")}
OPPOSITE, SLUG = ("Opposites: hot, big, fast", "opposite"), ("Slug: The Quick Brown River!", "slug")
