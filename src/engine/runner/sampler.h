#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/core/thread_pool.h"
#include "heddle/ops/sampling.h"

#include "core/device_graph.h"
#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/rows/scheduler.h"
#include "engine/runner/adjusted_rows.h"

namespace heddle {

/// What a step drew, in host memory: a token and a log-probability for each row of its logits.
struct StepTokens {
  std::span<const int32_t> ids;
  std::span<const float> logprobs;
};

/// The logits of a step.
struct StepLogits {
  TensorView rows;                       // [num_rows, the widest vocabulary] f32
  FunctionRef<int64_t(int64_t)> widths;  // of each row: the tokens that it may draw

  /// Rows [begin, begin + count), which are of one width.
  [[nodiscard]] TensorView of(int64_t begin, int64_t count) const {
    return rows.narrow(0, begin, count).narrow(1, 0, widths(begin));
  }
};

/// Draws the tokens of a step from its logits, copies them to the host and reports
/// log-probabilities. Two steps may be in flight. All memory is allocated beforehand.
class Sampler {
 public:
  Sampler(Device device, int64_t max_rows);

  /// Bytes that `stage` adds at most.
  [[nodiscard]] static size_t staged_bytes(int64_t max_rows);
  /// Room for penalties and biases: so many entries of RowAdjustment in all. Where it throws there
  /// is as much room as before.
  void reserve_adjustments(Device device, int64_t num_entries) {
    adjusted_.reserve(device, max_rows_, num_entries);
  }

  /// Adds what drawing reads of the host's, for num_rows rows of logits: those that no request has
  /// are greedy.
  void stage(StagedArrays& arrays, const StepSchedule& step, int64_t num_rows);
  /// Draws a token from each of the rows that were staged.
  void draw(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits);
  /// Begins to copy what was drawn to the host, in the order of ctx.stream.
  void send(const ExecContext& ctx);
  /// Waits for the copy that was begun first. Valid until the second next `send`.
  [[nodiscard]] StepTokens receive();
  /// Stores the most likely tokens of each place, and the log-probabilities of prompts, in the
  /// completions of the requests that have them reported. Waits for the device.
  void report(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits);
  /// [max_rows] i32 on the device: the tokens of the last step, for the next one.
  [[nodiscard]] TensorView drawn() const { return drawn_.rows(max_rows_); }

 private:
  /// What a step drew, on its way to the host.
  struct Mail {
    StagingBytes memory;  // as drawn_
    DeviceEvent sent;
    size_t count = 0;
  };
  /// Where a completion has the log-probabilities of some tokens; `own` may be empty.
  struct Reported {
    std::span<float> own;
    std::span<int32_t> top_ids;
    std::span<float> tops;
  };

  [[nodiscard]] TensorView logprobs() const;
  void report(const ExecContext& ctx, const TensorView& logits, const ConstTensorView& tokens,
              const Reported& to);

  int64_t max_rows_;
  std::vector<float> floats_;  // a column of the table at a time
  std::vector<int32_t> ints_;
  std::vector<int64_t> longs_;
  SamplingTable table_;            // of the step that was staged last
  ConstTensorView scored_tokens_;  // of its prompts, in the order of their logits
  AdjustedRows adjusted_;
  DeviceTensor drawn_;  // [2 * max_rows] i32: token ids, then f32 log-probabilities: one copy
  std::array<Mail, 2> mails_;
  size_t next_sent_ = 0, next_received_ = 0;
  DeviceTensor reported_;        // [kMaxScored] f32
  DeviceTensor top_ids_, tops_;  // [kMaxScored * kMaxTopLogprobs] i32 and f32
};

}  // namespace heddle
