#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "compare.h"
#include "model/test/llama_model_ref.h"
#include "random.h"
#include "safetensors_builder.h"
#include "temp_folder.h"

namespace heddle::testing {

/// Medusa heads of a test, in f32, and what they compute in double.
struct MedusaCase {
  int64_t hidden_size = 0, vocab_size = 0, num_heads = 0, num_layers = 1;
  bool has_outputs = false;
  std::vector<std::vector<float>> weights, biases;  // [head * num_layers + layer]
  std::vector<std::vector<float>> outputs;          // [head]

  /// All zeros.
  MedusaCase(int64_t hidden_size, int64_t vocab_size, int64_t num_heads, int64_t num_layers = 1,
             bool has_outputs = false)
      : hidden_size(hidden_size),
        vocab_size(vocab_size),
        num_heads(num_heads),
        num_layers(num_layers),
        has_outputs(has_outputs) {
    const auto count = static_cast<size_t>(num_heads * num_layers);
    weights.assign(count, std::vector<float>(static_cast<size_t>(hidden_size * hidden_size)));
    biases.assign(count, std::vector<float>(static_cast<size_t>(hidden_size)));
    if (!has_outputs) return;
    outputs.assign(static_cast<size_t>(num_heads),
                   std::vector<float>(static_cast<size_t>(vocab_size * hidden_size)));
  }

  [[nodiscard]] MedusaCase random() && {
    for (auto* all : {&weights, &biases, &outputs}) {
      for (std::vector<float>& values : *all) values = random_normal<float>(values.size(), 0.5f);
    }
    return std::move(*this);
  }

  [[nodiscard]] std::string config(std::string_view more = "") const {
    return R"({"base_model_name_or_path": "", "medusa_num_heads": )" + std::to_string(num_heads) +
           R"(, "medusa_num_layers": )" + std::to_string(num_layers) + R"(, "version": )" +
           (has_outputs ? "1" : "2") + std::string(more) + "}";
  }

  void add_tensors(SafetensorsBuilder& to, const std::string& prefix = "") const {
    const auto add = [&](const std::string& name, const std::vector<int64_t>& shape,
                         const std::vector<float>& values) {
      to.tensor(prefix + name, "F32", shape,
                {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    };
    for (int64_t head = 0; head < num_heads; ++head) {
      const std::string of_head = std::to_string(head) + ".";
      for (int64_t layer = 0; layer < num_layers; ++layer) {
        const auto i = static_cast<size_t>(head * num_layers + layer);
        const std::string name = of_head + std::to_string(layer) + ".linear.";
        add(name + "weight", {hidden_size, hidden_size}, weights[i]);
        add(name + "bias", {hidden_size}, biases[i]);
      }
      if (!has_outputs) continue;
      add(of_head + std::to_string(num_layers) + ".weight", {vocab_size, hidden_size},
          outputs[static_cast<size_t>(head)]);
    }
  }

  /// Writes them into an existing folder.
  void write(TempFolder& folder, const std::string& prefix = "",
             const char* file = "medusa_lm_head.safetensors") const {
    SafetensorsBuilder tensors;
    add_tensors(tensors);
    folder.write(prefix + "config.json", config());
    folder.write(prefix + file, tensors.build());
  }

  /// Logits of a head; output: the model's, where the heads have none.
  [[nodiscard]] model::ref::Values logits(int64_t head, model::ref::Values x,
                                          const model::ref::Values& output) const {
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      const auto i = static_cast<size_t>(head * num_layers + layer);
      const model::ref::Values y = model::ref::matvec(to_double(weights[i]), x);
      for (size_t k = 0; k < x.size(); ++k) {
        const double z = y[k] + double{biases[i][k]};
        x[k] += z / (1 + std::exp(-z));
      }
    }
    const auto h = static_cast<size_t>(head);
    return model::ref::matvec(has_outputs ? to_double(outputs[h]) : output, x);
  }
};

}  // namespace heddle::testing
