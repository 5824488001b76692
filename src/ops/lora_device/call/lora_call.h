#pragma once

#include <cstdint>
#include <iosfwd>

#include "heddle/core/context.h"

#include "ops/lora_device/call/lora_site.h"

namespace heddle {

enum class LoraHalves : uint8_t { kBoth, kShrink, kExpand };

/// A call on a GPU in numbers, from which kernels and their launches are selected.
struct LoraCall {
  LoraHalves halves = LoraHalves::kBoth;
  int num_slices = 1, num_slots = 1;
  int max_rank = 0;   // of the tables: sizes plans and partial sums
  int used_rank = 0;  // that both tables reach, and y or h where it is a tensor
  int64_t tokens = 0;
  int64_t input_features = 0;  // columns of x, or of h
  int64_t num_outputs = 0;     // columns of y of all slices
  /// Work items of the last half for one row tile, of all slices: 256 outputs each, or 128 ranks of
  /// lora_shrink.
  int64_t output_items = 0;
  bool input_vectors = false;  // x can be loaded 16 bytes at a time
  /// Tables of entries, A in rows of features and B in rows of ranks, y of the weights' dtype.
  bool entries = false;
  bool vectors = false;    // so can x, A and B, and y 4 elements at a time
  bool y_vectors = false;  // rows of y, and of B, are whole vectors of 16 bytes
  bool int32_strides = true;
  int64_t exchange_bytes = 0;

  [[nodiscard]] int num_chunks() const;
  friend std::ostream& operator<<(std::ostream& out, const LoraCall& call);
};

/// What decides how a call runs. Looks at its tensors and tables once, at nothing in memory.
[[nodiscard]] LoraCall describe(const ExecContext& ctx, const LoraSite& site);

/// Of a described call the rows [0, rows) and the slices of `part`, which are some of its own.
[[nodiscard]] LoraCall describe_part(const LoraCall& call, const LoraSite& part, int64_t rows);

/// f32 values that the partial sums of one row of a launch take, whatever its adapter is.
[[nodiscard]] int64_t partials_of_row(int64_t in_features, int64_t num_slices, int64_t max_rank);

}  // namespace heddle
