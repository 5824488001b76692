"""`heddle serve` on a GPU and one on the CPU: the same greedy answers but for near ties, and the same end.

  python3 tests/server/device_test.py HEDDLE

Elsewhere the tests of the server run on a GPU with HEDDLE_TEST_DEVICE=cuda.
"""
import signal
import tempfile
import unittest

from serve_case import Server, main

PROMPTS = ["ab", "the loom", "1 2 3", "weft and warp"]
ADAPTERS = 4
NEAR_TIE = 0.2  # of the two highest log-probabilities: what rounding to bf16 may turn round; 0.09 was seen


def answer_of(server, model, prompt):
    """(tokens, their margins): greedy."""
    status, answer = server.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True,
                                                     "return_token_ids": True, "logprobs": 2})
    assert status == 200, answer
    (choice,) = answer["choices"]
    highest = (sorted(step.values(), reverse=True) for step in choice["logprobs"]["top_logprobs"])
    return choice["token_ids"], [values[0] - values[1] if len(values) > 1 else 0 for values in highest]


class Device(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.servers = {}
        for device in ("cpu", "cuda"):
            self.servers[device] = Server(temporary.name, num_adapters=ADAPTERS, device=device)
            self.addCleanup(self.servers[device].stop, signal.SIGKILL)

    def test_answers_are_those_of_the_cpu(self):
        num_compared, ties = 0, []
        for model in ["base", *(f"a{i}" for i in range(ADAPTERS))]:
            for prompt in PROMPTS:
                want, margins = answer_of(self.servers["cpu"], model, prompt)
                got, _ = answer_of(self.servers["cuda"], model, prompt)
                self.assertEqual(len(got), len(want))
                differs = next((i for i in range(len(want)) if got[i] != want[i]), None)
                num_compared += len(want) if differs is None else differs
                if differs is not None:
                    ties.append(margins[differs])
                    self.assertLess(margins[differs], NEAR_TIE, f"{model}, {prompt}: {got} for {want}, margins {margins}")
        print(f"{num_compared} tokens are the same, {len(ties)} answers part at margins {[round(tie, 4) for tie in ties]}")
        self.assertGreater(num_compared, 16 * len(PROMPTS) * ADAPTERS // 2)

    def test_both_end_with_sigterm(self):
        for device, server in self.servers.items():
            self.assertIn(f" info running on {device}", server.log.read_text().splitlines()[0])
            self.assertTrue(server.complete("a0"))
            self.assertEqual(server.stop(), 0, device)


if __name__ == "__main__":
    main()
