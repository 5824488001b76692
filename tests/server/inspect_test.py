"""`heddle inspect` of adapters: with a model it shows how much of the model's weights they change, of any kind.

  python3 tests/server/inspect_test.py HEDDLE
"""
import json
import re
import subprocess

import numpy as np
from adapters_test import Files, change_values
from serve_case import HEDDLE, main
from tiny_model import TINY, projections, write_safetensors

FILE = "adapter_model.safetensors"
Q, V = (f"model.layers.1.self_attn.{name}" for name in ("q_proj", "v_proj"))


def tensors_of(path):
    """The tensors of an f32 file, in double."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8: 8 + size])
    return {name: np.frombuffer(data[8 + size:][slice(*of["data_offsets"])], "<f4").reshape(of["shape"]).astype(float)
            for name, of in header.items() if name != "__metadata__"}


def write(folder, config, tensors):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    write_safetensors(folder / FILE, {f"base_model.{name}": values for name, values in tensors.items()}, "F32")


class Inspect(Files):
    def inspect(self, folder, *options):
        """(exit code, standard output, standard error)"""
        done = subprocess.run([HEDDLE, "inspect", folder, *options], capture_output=True, text=True, cwd="/",
                              env={"CUDA_VISIBLE_DEVICES": ""})
        return done.returncode, done.stdout, done.stderr

    def on_model(self, folder):
        code, out, error = self.inspect(folder, "--model", self.folder / "model")
        self.assertEqual(code, 0, error)
        return out

    def norms(self, out, kind):
        """(delta, base) of the one line of this module and kind."""
        (line,) = re.findall(rf"^  {re.escape(kind)}  .*\|delta\| (\S+)  \|W\| (\S+)  \|delta\| / \|W\| (\S+)$", out, re.MULTILINE)
        delta, base, ratio = map(float, line)
        self.assertAlmostEqual(ratio, delta / base, delta=1e-4 * ratio)
        return delta, base

    def weights(self, name):
        return tensors_of(self.folder / "model" / "model.safetensors")[f"{name}.weight"]

    def close(self, norms, delta, base):
        for given, wanted in zip(norms, (np.linalg.norm(delta), np.linalg.norm(base))):
            self.assertAlmostEqual(given, wanted, delta=1e-4 * wanted)

    def test_norms_of_lora(self):
        folder = self.root / "a0"
        out = self.on_model(folder)
        tensors, scale = tensors_of(folder / FILE), 0.9
        names = [name for name, *_ in projections(TINY) if name.endswith("q_proj")]
        deltas = [scale * tensors[f"base_model.model.{name}.lora_B.weight"] @ tensors[f"base_model.model.{name}.lora_A.weight"] for name in names]
        self.close(self.norms(out, f"self_attn.q_proj  lora of rank {TINY.rank}  scale 0.9  f32  2 layers (0 to 1)"),
                   np.stack(deltas), np.stack([self.weights(name) for name in names]))
        self.assertRegex(out, r"\n  28 tensors, 14 sites, .*, \|delta\| / \|W\| \S+, digest [0-9a-f]{32}\n$")
        code, alone, error = self.inspect(folder)
        self.assertEqual((code, error), (0, ""))
        self.assertNotIn("|W|", alone)
        self.assertEqual(alone.strip()[-32:], out.strip()[-32:], "the digest")

    def test_kinds_that_need_the_widths_of_the_model(self):
        random = np.random.default_rng(2)
        hidden, rank = TINY.hidden, TINY.rank
        vera = {"vera_A": random.normal(0, 1, (rank, hidden)), "vera_B": random.normal(0, 1, (hidden, rank)),
                f"model.{Q}.vera_lambda_d": random.normal(0, 0.1, rank), f"model.{Q}.vera_lambda_b": random.normal(0, 0.1, hidden)}
        write(self.root / "vera", {"peft_type": "VERA", "r": rank, "target_modules": ["q_proj"], "save_projection": True,
                                   "layers_to_transform": [1]}, vera)
        d, b = vera[f"model.{Q}.vera_lambda_d"], vera[f"model.{Q}.vera_lambda_b"]
        delta = (b[:, None] * vera["vera_B"]) @ (d[:, None] * vera["vera_A"])
        out = self.on_model(self.root / "vera")
        self.close(self.norms(out, f"self_attn.q_proj  lora of rank {rank}  scale 1  f32  layer 1"), delta, self.weights(Q))

        factor = random.normal(1, 0.1, (self.weights(V).shape[0], 1))
        write(self.root / "ia3", {"peft_type": "IA3", "target_modules": ["v_proj"], "feedforward_modules": [], "layers_to_transform": [1]},
              {f"model.{V}.ia3_l": factor})
        out = self.on_model(self.root / "ia3")
        self.close(self.norms(out, "self_attn.v_proj  ia3  f32  layer 1"), (factor - 1) * self.weights(V), self.weights(V))

        for name in ("vera", "ia3"):
            code, out, error = self.inspect(self.root / name)
            self.assertEqual((code, out), (2, ""))
            self.assertIn("--model", error)

    def test_a_delta_of_zero_or_too_large_is_a_warning(self):
        file = self.root / "a0" / FILE
        names = [name for name in tensors_of(file) if "lora_B" in name]
        for factor, sentence in ((1000, "changes the weights by more than they are"), (0, "changes nothing, as before any training")):
            def change(values, factor=factor):
                values *= factor
            for name in names:
                change_values(file, name, change)
            out = self.on_model(self.root / "a0")
            self.assertEqual(out.count("  warning: "), 1, out)
            self.assertIn(sentence, out)

    def test_several_adapters_and_what_is_none(self):
        out = self.on_model(self.root)
        self.assertEqual(re.findall(r"adapters/(a\d): adapter on ", out), ["a0", "a1"])
        for path, base, word in ((self.folder / "model", self.folder / "model", "adapter_config.json"), (self.root / "a0", "/none", "/none")):
            code, out, error = self.inspect(path, "--model", base)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(word, error)


if __name__ == "__main__":
    main()
