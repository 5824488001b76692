#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "heddle/ops/linear.h"

// Weights for tests and benches.

namespace heddle {

inline constexpr WeightType kAllWeightTypes[] = {
    WeightType::kF32,  WeightType::kF16,  WeightType::kBF16, WeightType::kQ8_0,
    WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1,
    WeightType::kQ4K,  WeightType::kQ5K,  WeightType::kQ6K,
};

/// Stored weights with random codes and sub-scales; scales, and the weights of dense types, are
/// drawn from N(0, scale^2).
template <class Generator>
std::vector<std::byte> random_stored(WeightType type, int64_t num_weights, Generator& generator,
                                     float scale = 0.05f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<std::byte> stored(stored_bytes(type, num_weights));
  if (type == WeightType::kF32) {
    for (size_t at = 0; at < stored.size(); at += 4) {
      const float value = normal(generator);
      std::memcpy(&stored[at], &value, 4);
    }
    return stored;
  }
  const auto put_half = [&](size_t at) {
    const half value = from_float<half>(normal(generator));
    std::memcpy(&stored[at], &value, 2);
  };
  if (type == WeightType::kBF16 || type == WeightType::kF16) {
    for (size_t at = 0; at < stored.size(); at += 2)
      put_half(at);  // as bf16, a finite number just as well
    return stored;
  }
  for (std::byte& byte : stored) byte = static_cast<std::byte>(generator());
  const size_t block = stored_bytes(type, block_size(type));
  const bool scales_last = type == WeightType::kQ6K;
  const bool two_scales = type == WeightType::kQ4_1 || type == WeightType::kQ5_1 ||
                          type == WeightType::kQ4K || type == WeightType::kQ5K;
  for (size_t at = 0; at < stored.size(); at += block) {
    put_half(scales_last ? at + block - 2 : at);
    if (two_scales) put_half(at + 2);
  }
  return stored;
}

/// A weight in packed form that owns its bytes.
class OwnedWeight {
 public:
  /// All bytes 0xFF at first: NaN, should the product use any that packing left out.
  OwnedWeight(WeightType type, int64_t out_features, int64_t in_features)
      : bytes_(packed_bytes(type, out_features, in_features) + 64, std::byte{0xFF}),
        offset_((64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64),
        view_{type, out_features, in_features, bytes_.data() + offset_} {}
  OwnedWeight(const ExecContext& ctx, WeightType type, int64_t out_features, int64_t in_features,
              std::span<const std::byte> stored)
      : OwnedWeight(type, out_features, in_features) {
    pack_rows(ctx, bytes(), type, out_features, in_features, 0, out_features, stored);
  }
  OwnedWeight(OwnedWeight&&) = default;  // the bytes of a moved vector stay where they are

  [[nodiscard]] std::span<std::byte> bytes() {
    return std::span(bytes_).subspan(offset_, bytes_.size() - 64);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::span(bytes_).subspan(offset_, bytes_.size() - 64);
  }
  [[nodiscard]] const PackedWeight& view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  size_t offset_;
  PackedWeight view_;
};

}  // namespace heddle
