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
  int64_t num_rows_ = 0, num_entries_ = 0;  // room
  std::vector<int32_t> ints_;               // a column at a time
  std::vector<float> floats_;
  StagedArrays staged_{Device{}, 0};
  DeviceTensor saved_;  // [num_entries_] f32
  LogitAdjustments views_;
};

}  // namespace heddle
