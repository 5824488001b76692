#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/dtype.h"

#include "files/safetensors.h"
#include "model/adapters/adapter_config.h"
#include "model/adapters/projection.h"

namespace heddle::model {

/// The two halves that an adapter adds to one linear layer: y += scale * B (A x). Rows in the order
/// of the Hugging Face checkpoint: where a model file permutes the rows of q and k, B's rows must
/// be permuted alike.
struct AdapterPair {
  int64_t layer = 0;
  const LinearModule* module = &kLinearModules[0];
  Projection projection = Projection::kQ;  // the module's first
  int64_t rank = 0, in_features = 0, out_features = 0;
  float scale = 0.0f;             // alpha / rank, or alpha / sqrt(rank)
  DType dtype = DType::kFloat32;  // of both halves: f32, f16 or bf16
  const std::byte* a = nullptr;   // [rank, in_features], any alignment
  const std::byte* b = nullptr;   // [out_features, rank], any alignment
};

/// A LoRA adapter as PEFT saves it: a folder with adapter_config.json and
/// adapter_model.safetensors. What is not plain LoRA on the seven projections is refused by name.
class PeftAdapter {
 public:
  explicit PeftAdapter(const std::string& folder);
  /// From memory that outlives the object; `name` stands for the folder in errors.
  PeftAdapter(std::string_view config_json, std::span<const std::byte> safetensors,
              const std::string& name);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const AdapterConfig& config() const { return config_; }
  /// By layer, then projection; each at most once, no rank above kMaxLoraRank.
  [[nodiscard]] const std::vector<AdapterPair>& pairs() const { return pairs_; }

  /// Error(kInvalidArgument) unless every pair fits its layer, and every layer that the config
  /// targets has its pair.
  void check_fits(const ModelDims& dims) const;

 private:
  void read_pairs();

  std::string path_;
  AdapterConfig config_;
  files::SafetensorsFile tensors_;
  std::vector<AdapterPair> pairs_;
};

}  // namespace heddle::model
