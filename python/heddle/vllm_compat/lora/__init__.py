"""In place of `vllm.lora`."""
