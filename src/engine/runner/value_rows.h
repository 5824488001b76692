#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/core/context.h"

#include "core/device_bytes.h"
#include "core/device_graph.h"
#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/rows/scheduler.h"
#include "engine/rows/value_places.h"
#include "engine/runner/sampler.h"

namespace heddle {

/// Collects the numbers of rows that want values: pooled hidden states, and scores of tokens. Each
/// row has a place of its own while it runs, where a prompt that is computed in chunks is summed up
/// in the order of its tokens. Two steps may be in flight.
class ValueRows {
 public:
  ValueRows(Device device, int64_t max_rows, int64_t hidden_size);

  /// Bytes that `stage` adds at most.
  [[nodiscard]] static size_t staged_bytes(int64_t max_rows);
  /// Gives a row that starts its place. The first one allocates the memory of all: where that
  /// throws, nothing has changed.
  void give_place(RowValues& row);

  /// Adds the tokens whose scores rows of the step want.
  void stage(StagedArrays& arrays, const StepSchedule& step);
  /// Sums up the hidden states [num_tokens, hidden_size] of the step.
  void pool(const ExecContext& ctx, const StepSchedule& step, const TensorView& hidden);
  /// Takes the scores of tokens from the step's logits.
  void score(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits);
  /// Begins to copy what is complete to the host, in the order of ctx.stream.
  void send(const ExecContext& ctx, const StepSchedule& step);
  /// Waits for the copy that was begun first, which is that of `step`, and stores it in its rows.
  void receive(const StepSchedule& step);

 private:
  struct Mail {
    StagingBytes memory;  // [max_rows, width_] f32
    DeviceEvent sent;
    bool is_empty = true;
  };

  /// [count] of the numbers of a place, from its `begin`.
  [[nodiscard]] TensorView numbers(const RowValues& row, int64_t begin, int64_t count) const;

  Device device_;
  int64_t max_rows_, hidden_size_, width_;
  ValuePlaces places_;
  DeviceTensor collected_;  // [max_rows, width_] f32, once a row has wanted a place
  std::array<Mail, 2> mails_;
  size_t next_sent_ = 0, next_received_ = 0;
  std::vector<int32_t> token_ids_;
  ConstTensorView staged_ids_;  // of the step that was staged last
};

}  // namespace heddle
