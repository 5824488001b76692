"""Tenants that share a `heddle.LLM`."""

from __future__ import annotations

import concurrent.futures

import pytest

import heddle


def test_the_lowest_priority_starts_first(model: str) -> None:
    prompts = [list(range(100 + i, 110 + i)) for i in range(6)]
    with heddle.LLM(model, max_context=256, num_threads=2, max_batch=1) as made:
        want = made.generate(prompts, max_tokens=3)
        long = heddle.SamplingParams(max_tokens=60, ignore_end=True)  # which runs while the others come
        ended: list[int] = []
        with made.stream(prompts[0], long) as stream:
            next(iter(stream))
            with concurrent.futures.ThreadPoolExecutor(5) as pool:

                def ask(i: int) -> heddle.Answer:
                    answer = made.generate(prompts[i], max_tokens=3, priority=-i)
                    ended.append(i)
                    return answer

                jobs = [pool.submit(ask, i) for i in range(1, 6)]
                while made.load.num_waiting < 5:
                    assert not ended
                stream.cancel()
                assert [job.result() for job in jobs] == want[1:], "no bit depends on it"
        assert ended == [5, 4, 3, 2, 1]
        assert made.generate(prompts, [heddle.SamplingParams(priority=i % 3) for i in range(6)], max_tokens=3) == want
        assert made.embed(prompts[0], priority=-1) == made.embed(prompts[0])
        for wrong, says in (("high", "is str, expected a whole number"), (1.5, "is float, expected a whole number"), (2**63, "has too many digits")):
            with pytest.raises(TypeError, match=f"^priority {says}$"):
                made.generate(prompts[0], priority=wrong)  # type: ignore[call-overload]
            with pytest.raises(TypeError, match=f"^priority {says}$"):
                made.embed(prompts[0], priority=wrong)  # type: ignore[call-overload]


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
