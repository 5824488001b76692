"""A script for vLLM: requests with and without adapters, step by step. Arguments: model, folder of an adapter."""

import sys

from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams
from vllm.lora.request import LoRARequest

Row = tuple[str, SamplingParams, LoRARequest | None]


def rows_of(adapter: str) -> list[Row]:
    """Two for the base model, one of them drawn; two for one adapter under two names."""
    scored = SamplingParams(temperature=0.0, logprobs=1, prompt_logprobs=1, max_tokens=8)
    drawn = SamplingParams(temperature=0.8, top_k=5, presence_penalty=0.2, max_tokens=8)
    ended = SamplingParams(temperature=0.0, logprobs=1, prompt_logprobs=1, max_tokens=8, stop_token_ids=[3])
    return [
        ("A robot may not injure a human being", scored, None),
        ("To be or not to be,", drawn, None),
        ("Opposites: hot, big, fast\n", ended, LoRARequest("first", 1, adapter)),
        ("Opposites: hot, big, fast\n", ended, LoRARequest("second", 2, adapter)),
    ]


def run(engine: LLMEngine, rows: list[Row]) -> None:
    """Adds a request before each step, as long as there are some."""
    number = 0
    while rows or engine.has_unfinished_requests():
        if rows:
            prompt, params, lora = rows.pop(0)
            engine.add_request(str(number), prompt, params, lora_request=lora)
            number += 1
        outputs: list[RequestOutput] = engine.step()
        for output in outputs:
            if output.finished:
                answer = output.outputs[0]
                scores = output.prompt_logprobs or []
                print(output.request_id, len(output.prompt_token_ids), len(scores), answer.token_ids, answer.finish_reason, repr(answer.text))


if __name__ == "__main__":
    model, folder = sys.argv[1:]
    args = EngineArgs(model=model, enable_lora=True, max_loras=1, max_lora_rank=8, max_cpu_loras=2, max_num_seqs=256)
    run(LLMEngine.from_engine_args(args), rows_of(folder))
