#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "heddle/ops/lora.h"

#include "core/math.h"
#include "model/adapters/adapter.h"
#include "model/config/block_shape.h"

namespace heddle::model {

/// How weights of adapters lie in memory for the ops that read them.
struct LoraForm {
  LoraLayout a = LoraLayout::kRankMajor, b = LoraLayout::kRankMinor;
  LoraAlignment fit = LoraAlignment::kNone;
  std::optional<DType> dtype{};  // absent: as the adapter's file has them

  /// The fastest to read for the ops of a device. On the CPU lanes lie along the rank for A and
  /// along the outputs for B. On CUDA both halves lie as PEFT stores them, aligned for vector
  /// loads, in the dtype of the activations.
  [[nodiscard]] static LoraForm of(DeviceType device, DType activations);
};

/// One half of a pair and how it lies in memory. As stored it is a weight of `rank` and `features`,
/// without gaps, at any address.
struct AdapterHalf {
  const std::byte* data;
  DType stored_dtype;
  LoraLayout stored_layout;
  int64_t stored_rank, features;

  DType dtype;
  LoraLayout layout;
  int64_t rank;  // at least stored_rank: zeros fill the rest
  int64_t row_stride;

  [[nodiscard]] int64_t rows() const { return layout == LoraLayout::kRankMajor ? rank : features; }
  /// With a gap after it, so that the next one is aligned.
  [[nodiscard]] size_t num_bytes() const {
    return round_up(static_cast<size_t>(rows() * row_stride) * size_of(dtype), size_t{64});
  }
  /// Writes num_bytes() bytes: zeros where nothing is stored.
  void write(std::byte* to) const;
  /// What was written there.
  [[nodiscard]] ConstTensorView view(const std::byte* at, Device device) const;
};

/// Of each pair A, and B of each of its slices.
[[nodiscard]] std::vector<AdapterHalf> halves_of(const Adapter& adapter, const BlockShape& block,
                                                 const LoraForm& form);
[[nodiscard]] size_t num_bytes(const std::vector<AdapterHalf>& halves);

}  // namespace heddle::model
