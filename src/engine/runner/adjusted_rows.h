#pragma once

#include <cstdint>
#include <vector>

#include "heddle/ops/sampling.h"

#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/rows/scheduler.h"

namespace heddle {

/// The penalties and biases of all requests of a step, in memory of the device.
class AdjustedRows {
 public:
  /// Room for so many rows and, in all, entries: `adjust` and `restore` then do not allocate. Where
  /// it throws there is as much room as before.
  void reserve(Device device, int64_t num_rows, int64_t num_entries);

  /// Changes the logits that the step draws from. Returns whether any request has adjustments.
  bool adjust(const ExecContext& ctx, const StepSchedule& step, TensorView logits);
  /// Restores the logits that `adjust` has changed.
  void restore(const ExecContext& ctx, TensorView logits);

 private:
  void add(const RowAdjustment& adjustment);

  int64_t num_rows_ = 0, num_entries_ = 0;  // room
  // Of all rows of logits that a step draws from, and of their entries.
  std::vector<int32_t> indptr_, token_ids_, prompt_counts_, output_counts_;
  std::vector<float> bias_, options_;
  StagedArrays staged_{Device{}, 0};
  DeviceTensor saved_;  // [num_entries_] f32
  LogitAdjustments views_;
};

}  // namespace heddle
