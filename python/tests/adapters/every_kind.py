"""All kinds of adapters that are compared with PEFT."""

from __future__ import annotations

from adapter_kinds import LORA_KINDS
from adapter_methods import FORMS, METHODS

KINDS = LORA_KINDS + METHODS + FORMS
