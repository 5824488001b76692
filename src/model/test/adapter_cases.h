#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/adapters/peft_adapter.h"
#include "model/test/llama_model_ref.h"
#include "random.h"
#include "safetensors_builder.h"

namespace heddle::model {

/// A random adapter of one dtype on some projections, as PEFT would save it, added to a reference
/// model as well. `file` holds its weights.
template <class T>
PeftAdapter random_adapter(const char* dtype, int64_t rank, const std::vector<int>& targets,
                           std::string& file, ref::Llama& merged) {
  const BlockShape block = merged.config.block();
  const double alpha = 3.0;
  testing::SafetensorsBuilder tensors;
  std::vector<std::string> target_names;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    const auto values = testing::random_normal<T>(static_cast<size_t>(rows * columns), 0.2f);
    tensors.tensor(name, dtype, {rows, columns},
                   {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
    return testing::to_double(values);
  };
  for (const int p : targets) target_names.push_back(llama::target_name(p));
  for (int64_t layer = 0; layer < merged.config.num_layers; ++layer) {
    for (const int p : targets) {
      const auto [in, out] = block.slice(p).dims;
      const std::string prefix =
          "base_model.model.model.layers." + std::to_string(layer) + "." + llama::module_name(p);
      const std::vector<double> a = add(prefix + ".lora_A.weight", rank, in);
      const std::vector<double> b = add(prefix + ".lora_B.weight", out, rank);
      std::vector<double>& w = merged.layers[static_cast<size_t>(layer)].projection[p];
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t r = 0; r < rank; ++r) {
          for (int64_t k = 0; k < in; ++k) {
            w[static_cast<size_t>(o * in + k)] += alpha / static_cast<double>(rank) *
                                                  b[static_cast<size_t>(o * rank + r)] *
                                                  a[static_cast<size_t>(r * in + k)];
          }
        }
      }
    }
  }
  file = tensors.build();
  const nlohmann::json config = {
      {"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", alpha}, {"target_modules", target_names}};
  return PeftAdapter(config.dump(), std::as_bytes(std::span(file)), "random adapter");
}

}  // namespace heddle::model
