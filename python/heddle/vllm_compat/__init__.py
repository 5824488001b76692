"""vLLM's names for offline answers, run by heddle: a script for vLLM changes its imports alone.

    from heddle.vllm_compat import LLM, SamplingParams          # was: from vllm import ...
    from heddle.vllm_compat.lora.request import LoRARequest     # was: from vllm.lora.request

    llm = LLM("a-model", enable_lora=True)
    sql = LoRARequest("sql", 1, path)
    outputs = llm.generate(prompts, SamplingParams(max_tokens=64), lora_request=sql)
    print(outputs[0].outputs[0].text)

What vLLM has and heddle does not is refused with a sentence that says what to use
(docs/compat/vllm_python.md).
"""

from heddle.vllm_compat._engine_args import EngineArgs
from heddle.vllm_compat._llm import LLM
from heddle.vllm_compat._llm_engine import LLMEngine
from heddle.vllm_compat.inputs import PromptType, TextPrompt, TokensPrompt
from heddle.vllm_compat.lora.request import LoRARequest
from heddle.vllm_compat.outputs import CompletionOutput, RequestOutput
from heddle.vllm_compat.sampling_params import SamplingParams

__all__ = [
    "LLM",
    "CompletionOutput",
    "EngineArgs",
    "LLMEngine",
    "LoRARequest",
    "PromptType",
    "RequestOutput",
    "SamplingParams",
    "TextPrompt",
    "TokensPrompt",
]


def __dir__() -> list[str]:
    return sorted(__all__)
