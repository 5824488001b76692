"""A script for vLLM: a batch of prompts through an adapter, and a conversation. Arguments: model, folder of an adapter."""

import sys

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

model, adapter = sys.argv[1:]
llm = LLM(model=model, enable_lora=True, max_lora_rank=64, max_loras=2, max_model_len=512)
params = SamplingParams(temperature=0, max_tokens=12, stop=["\n"])
prompts = ["The loom is", "Once upon a time"]

for output in llm.generate(prompts, params, lora_request=LoRARequest("opposite", 1, adapter)):
    print(repr(output.prompt), repr(output.outputs[0].text), output.lora_request.lora_name)

conversation = [{"role": "user", "content": "Opposites: hot, big, fast"}]
for lora in (None, LoRARequest("opposite", 1, adapter)):
    [output] = llm.chat(conversation, SamplingParams(temperature=0, max_tokens=16), lora_request=lora, use_tqdm=False)
    print(repr(output.outputs[0].text), output.outputs[0].finish_reason)
