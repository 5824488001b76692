#pragma once

#include <cstdint>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/rows/scheduler.h"

namespace heddle {

/// The logits of a step without the tokens that requests may not draw (RowMask).
class MaskedRows {
 public:
  /// Room for so many rows of logits, of so many tokens each: `mask` then does not allocate. Where
  /// it throws there is as much room as before.
  void reserve(Device device, int64_t num_rows, int64_t num_tokens);

  /// The logits [num_rows, num_tokens] of a step, a row without a mask as it is; `logits` itself
  /// where no request has one. The masks are made by the threads of the context, concurrently with
  /// what runs on a GPU.
  [[nodiscard]] TensorView mask(const ExecContext& ctx, const StepSchedule& step,
                                TensorView logits);

 private:
  int64_t num_rows_ = 0, num_tokens_ = 0;  // room
  struct Row {
    const RowStep* row;
    int64_t first_mask;  // of num_logits
  };
  std::vector<Row> rows_;  // of this step
  std::vector<int32_t> indices_, words_;
  StagedArrays staged_{Device{}, 0};
  DeviceTensor masked_;  // [num_rows_, num_tokens_] f32
};

}  // namespace heddle
