#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/device_tensor.h"
#include "model/adapters/medusa/medusa_files.h"
#include "model/adapters/own_matrix.h"

namespace heddle::model {

/// Medusa heads in memory of one device. Head i makes of x, what the model's head reads at a token,
/// logits of the token i + 2 places after it:
///   x = x + silu(W x + b), layer by layer, then `output` x, or where that is absent the model's
///   head of x
/// Cai et al. 2024, arXiv 2401.10774.
class MedusaHeads {
 public:
  /// Of files that are loaded. activations: what the model's products read and write.
  MedusaHeads(const ExecContext& ctx, const MedusaFiles& files, DType activations);
  /// Heads of one layer and nothing but zeros, to be measured.
  MedusaHeads(const ExecContext& ctx, int64_t num_heads, int64_t hidden_size, DType activations);

  struct Layer {
    OwnMatrix weight{};
    DeviceTensor bias{};  // of activations
  };
  struct Head {
    std::vector<Layer> layers{};
    OwnMatrix output{};  // absent where has_outputs is false
  };

  [[nodiscard]] int64_t num_heads() const { return std::ssize(heads_); }
  [[nodiscard]] int64_t num_layers() const { return std::ssize(heads_.front().layers); }
  /// Whether they have outputs of their own, each.
  [[nodiscard]] bool has_outputs() const { return heads_.front().output.memory != nullptr; }
  [[nodiscard]] const Head& operator[](int64_t i) const { return heads_[static_cast<size_t>(i)]; }

 private:
  std::vector<Head> heads_;  // at least one
};

/// What the heads take. rounded_to: the activations' dtype on a GPU, absent on the CPU.
[[nodiscard]] int64_t medusa_bytes(const MedusaFiles& files, std::optional<DType> rounded_to);

}  // namespace heddle::model
