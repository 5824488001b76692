"""TRL's GRPOTrainer with answers of `heddle serve` (examples/python/trl_rollout.py): each step's come from the adapter of that step."""

import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from frameworks import TORCH_WANTED

if not TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import datasets  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "examples" / "python"), str(ROOT / "tests" / "server")]
from tiny_model import write_model  # noqa: E402
from trl_rollout import Rollout  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("HEDDLE_BUILD_DIR", ROOT / "build")) / "heddle"
NUM_STEPS, EACH = 10, 4
pytestmark = pytest.mark.skipif(not PROGRAM.with_name("heddle-serve").exists(), reason="a build without the server")


@pytest.fixture
def server(tmp_path):
    """(url, --lora-root, key) of a server of the model in tmp_path / "model"."""
    write_model(tmp_path / "model")
    root = tmp_path / "adapters"
    root.mkdir()
    (tmp_path / "keys").write_text("a-key\n")
    log = tmp_path / "log"
    with open(log, "w") as to:
        process = subprocess.Popen([PROGRAM, "serve", "--model", tmp_path / "model", "--lora-root", root, "--admin-key-file", tmp_path / "keys",
                                    "--port", "0", "--threads", "2", "--device", "cpu"], stdout=to, stderr=to)
    deadline = time.monotonic() + 60
    while not (found := re.search(r"listening on (http://\S+:\d+)", log.read_text())):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    yield found[1], root, "a-key"
    process.terminate()
    assert process.wait(60) == 0, log.read_text()


class Watched(Rollout):
    """Holds the log-probabilities of each answer against those that the trainer's model gives, now and one step ago."""

    def __init__(self, *where):
        super().__init__(*where)
        self.steps, self.answers, self.differences, self.before, self.of_before = [], set(), [], None, []

    def __call__(self, prompts, trainer):
        output = super().__call__(prompts, trainer)
        self.steps.append((trainer.state.global_step, self.adapter))
        model = trainer.accelerator.unwrap_model(trainer.model)
        now = {name: weights.detach().clone() for name, weights in model.named_parameters() if "lora_" in name}
        self.differences.append(self.difference(model, output))
        if self.before is not None:
            peft.set_peft_model_state_dict(model, self.before)
            self.of_before.append(self.difference(model, output))
            peft.set_peft_model_state_dict(model, peft_names(now))
        self.before = peft_names(now)
        self.answers.update(map(tuple, output["completion_ids"]))
        return output

    @staticmethod
    def difference(model, output):
        """The largest of any token."""
        largest, was_training = 0.0, model.training
        model.eval()
        for prompt, answer, logprobs in zip(output["prompt_ids"], output["completion_ids"], output["logprobs"]):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1:-1]
            wanted = logits.float().log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0]
            told = torch.tensor([float("nan") if x is None else x for x in logprobs])
            is_told = ~told.isnan()
            assert is_told.sum() >= len(answer) - 1
            largest = max(largest, float((wanted - told)[is_told].abs().max()) if is_told.any() else 0.0)
        model.train(was_training)
        return largest


def peft_names(weights):
    """Names of parameters as a file of PEFT has them."""
    return {name.replace(".default.", "."): values for name, values in weights.items()}


def test_each_step_has_answers_of_its_own_adapter(server, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    tokenizer.pad_token = tokenizer.eos_token
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    rollout = Watched(*server)
    trainer = trl.GRPOTrainer(
        model=model, processing_class=tokenizer, rollout_func=rollout,
        reward_funcs=lambda completions, **_: [float(sum(c.isalpha() for c in text)) for text in completions],
        train_dataset=datasets.Dataset.from_dict({"prompt": ["a loom", "warp and", "the weft"] * 4}),
        peft_config=peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"),
        args=trl.GRPOConfig(output_dir=str(tmp_path / "out"), max_steps=NUM_STEPS, per_device_train_batch_size=EACH, num_generations=EACH,
                            max_completion_length=12, learning_rate=0.02, beta=0.0, use_cpu=True, bf16=False, seed=1, report_to=[], save_strategy="no",
                            logging_strategy="no", disable_tqdm=True))
    trainer.train()
    assert rollout.steps == [(step, f"policy-v{step}") for step in range(NUM_STEPS)]
    assert len(rollout.answers) > NUM_STEPS, "samples of one prompt differ"
    assert max(rollout.differences) < 1e-3, "the adapter of the step"
    changed = sum(difference > 1e-2 for difference in rollout.of_before)
    assert changed >= NUM_STEPS // 2, f"the adapters differ enough to tell them apart: {rollout.of_before}"
    assert [folder.name for folder in server[1].iterdir()] == [f"policy-v{NUM_STEPS - 1}"]
