#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/ops/sampling.h"

#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/rows/sequence.h"

namespace heddle {

/// The adjustments of all rows of a step, in memory of the device.
class AdjustedRows {
 public:
  /// Room for so many rows and, in all, entries: `adjust` and `restore` then ask for no memory.
  /// Where it throws there is as much room as before.
  void reserve(Device device, int64_t num_rows, int64_t num_entries);

  /// Changes the logits, one row of them for each of the rows. Returns whether any asks for it.
  bool adjust(const ExecContext& ctx, std::span<Sequence* const> rows, TensorView logits);
  /// Puts the logits back that `adjust` has changed.
  void restore(const ExecContext& ctx, TensorView logits);

 private:
  int64_t num_rows_ = 0, num_entries_ = 0;  // room
  std::vector<int32_t> indptr_, token_ids_, prompt_counts_, output_counts_;
  std::vector<float> bias_, repetition_, presence_, frequency_;
  StagedArrays staged_{Device{}, 0};
  DeviceTensor saved_;  // [num_entries_] f32
  LogitAdjustments views_;
};

}  // namespace heddle
