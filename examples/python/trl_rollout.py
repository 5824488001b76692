"""Answers for TRL's GRPOTrainer from `heddle serve`: GRPOTrainer(..., rollout_func=Rollout(URL, LORA_ROOT, ADMIN_KEY)).

Before the answers of a step its adapter is loaded under a name of its own, policy-v0, policy-v1 and so on, and the one
before is unloaded: answers that still run end with the weights that they began with. The model is one of PEFT, and
LORA_ROOT the folder that `heddle serve --lora-root` has.
"""

import json
import pathlib
import shutil
import urllib.request


class Rollout:
    def __init__(self, url, lora_root, admin_key, name="policy"):
        self.url, self.root, self.admin_key, self.name = url, pathlib.Path(lora_root), admin_key, name
        self.adapter = None

    def post(self, path, body):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.admin_key}"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)) as response:
            return response.read()

    def update_lora(self, trainer):
        """The server has the weights of this step, and answers with them from here on."""
        adapter, before = f"{self.name}-v{trainer.state.global_step}", self.adapter
        if adapter == before:
            return
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(self.root / adapter)
        self.post("/v1/load_lora_adapter", {"lora_name": adapter, "lora_path": adapter})
        self.adapter = adapter
        if before is not None:
            self.post("/v1/unload_lora_adapter", {"lora_name": before})
            shutil.rmtree(self.root / before)

    def __call__(self, prompts, trainer):
        self.update_lora(trainer)
        args, tokenizer = trainer.args, trainer.processing_class
        ids = [tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False) if isinstance(prompt, list)
               else tokenizer(prompt)["input_ids"] for prompt in prompts]
        each = args.num_generations  # TRL repeats a prompt so often; samples of one request have seeds of their own
        body = {"model": self.adapter, "prompt": ids[::each], "n": each, "seed": trainer.state.global_step,
                "max_tokens": args.max_completion_length, "temperature": args.temperature, "top_p": args.top_p,
                "top_k": args.top_k, "logprobs": 0, "return_token_ids": True}
        choices = json.loads(self.post("/v1/completions", body))["choices"]
        ends = [choice["finish_reason"] == "stop" for choice in choices]  # the end token is learnt, too; its logprob is not told
        return {"prompt_ids": ids, "completion_ids": [c["token_ids"] + [tokenizer.eos_token_id] * e for c, e in zip(choices, ends)],
                "logprobs": [c["logprobs"]["token_logprobs"] + [None] * e for c, e in zip(choices, ends)]}
