#pragma once

#include <string>
#include <vector>

#include "model/test/adapter_cases.h"
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

}  // namespace heddle::testing
