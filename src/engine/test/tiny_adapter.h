#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compare.h"
#include "model/test/adapter_cases.h"
#include "safetensors_builder.h"
#include "temp_folder.h"

namespace heddle::testing {

/// A random adapter in a folder of its own; `merged` is the model with it.
struct TinyAdapter {
  model::ref::Llama merged;
  TempFolder folder;

  TinyAdapter(const model::ref::Llama& base, int64_t rank, const std::vector<int>& targets,
              DType dtype = DType::kFloat32, const std::string& settings = "")
      : merged(base) {
    std::string weights;
    if (dtype == DType::kFloat32) {
      (void)model::random_adapter<float>("F32", rank, targets, weights, merged);
    } else {
      (void)model::random_adapter<bfloat16>("BF16", rank, targets, weights, merged);
    }
    std::string names;
    for (const int p : targets) {
      names += (names.empty() ? "\"" : ", \"") + model::llama::target_name(p) + '"';
    }
    folder.write("adapter_model.safetensors", weights);
    folder.write("adapter_config.json", R"({"peft_type": "LORA", "lora_alpha": 3.0, "r": )" +
                                            std::to_string(rank) + R"(, "target_modules": [)" +
                                            names + "]" + settings + "}");
  }
};

/// An adapter with a random embedding and head of its own, of more tokens than the model has;
/// `merged` is the model with them.
struct WideAdapter {
  model::ref::Llama merged;
  TempFolder folder;

  WideAdapter(const model::ref::Llama& base, int64_t vocab_size) : merged(base) {
    merged.config.vocab_size = vocab_size;
    const int64_t hidden_size = merged.config.hidden_size;
    SafetensorsBuilder tensors;
    for (const auto& [name, weights] : {std::pair("model.embed_tokens.weight", &merged.embedding),
                                        {"lm_head.weight", &merged.output}}) {
      const auto values = random_normal<float>(static_cast<size_t>(vocab_size * hidden_size));
      *weights = to_double(values);
      tensors.tensor(std::string("base_model.model.") + name, "F32", {vocab_size, hidden_size},
                     {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    }
    folder.write("adapter_model.safetensors", tensors.build());
    folder.write("adapter_config.json",
                 R"({"peft_type": "LORA", "modules_to_save": ["embed_tokens", "lm_head"]})");
  }
};

}  // namespace heddle::testing
