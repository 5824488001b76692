"""Tenants that share a `heddle.LLM`."""

from __future__ import annotations

import pytest

import heddle


def test_tenants_share_the_engine(model: str) -> None:
    prompt = list(range(100, 110))
    with heddle.LLM(model, max_context=256, num_threads=2) as off, heddle.LLM(model, max_context=256, num_threads=2, fairness="tenant") as made:
        want = off.generate(prompt, max_tokens=3)
        assert made.generate([prompt] * 3, max_tokens=3, tenant="reports", tenant_weight=0.5) == [want] * 3
        assert made.generate(prompt, max_tokens=3) == want
        with pytest.raises(ValueError, match="tenant is 'me', but tenants do not share the engine"):
            off.generate(prompt, tenant="me")
        with pytest.raises(ValueError, match="tenant_weight is 0, expected 0.001 to 1000"):
            made.generate(prompt, tenant="me", tenant_weight=0)
    with pytest.raises(ValueError, match="fairness is 'fair', expected off, adapter or tenant"):
        heddle.LLM(model, fairness="fair")
