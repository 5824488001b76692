#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/core/thread_pool.h"
#include "heddle/ops/sampling.h"

#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/rows/step_schedule.h"
#include "engine/runner/adjusted_rows.h"
#include "engine/runner/step_results.h"

namespace heddle {

/// The logits of a step.
struct StepLogits {
  TensorView rows;                       // [num_rows, the widest vocabulary] f32
  FunctionRef<int64_t(int64_t)> widths;  // of each row: the tokens that it may draw

  /// Rows [begin, begin + count), which are of one width.
  [[nodiscard]] TensorView of(int64_t begin, int64_t count) const {
    return rows.narrow(0, begin, count).narrow(1, 0, widths(begin));
  }
};

/// Draws the tokens of a step from its logits, and reports log-probabilities. All memory is
/// allocated beforehand.
class Sampler {
 public:
  Sampler(Device device, int64_t max_rows);

  /// Bytes that `stage` adds at most.
  [[nodiscard]] static size_t staged_bytes(int64_t max_rows);
  /// Room for penalties and biases: so many entries of RowAdjustment in all. Where it throws there
  /// is as much room as before.
  void reserve_adjustments(Device device, int64_t num_entries);

  /// Adds what drawing reads of the host's, for num_rows rows of logits: those that no request has
  /// are greedy.
  void stage(StagedArrays& arrays, const StepSchedule& step, int64_t num_rows);
  /// Draws a token from each of the num_rows rows that were staged.
  void draw(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits);
  /// Begins to copy what was drawn to the host, and waits for the copy that was begun first.
  void send(const ExecContext& ctx) { results_.send(ctx, table_.seed.size(0)); }
  [[nodiscard]] StepTokens receive() { return results_.receive(); }
  /// Stores the most likely tokens of each place, and the log-probabilities of prompts, in the
  /// completions of the requests that have them reported. Waits for the device.
  void report(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits);
  /// All tokens that the last step drew, on the device.
  [[nodiscard]] ConstTensorView drawn() const { return results_.drawn(); }

 private:
  /// The columns of a SamplingTable.
  struct Columns {
    std::vector<float> temperature, top_p, min_p;
    std::vector<int32_t> top_k;
    std::vector<int64_t> seed, step;
  };
  /// Where a completion has the log-probabilities of some tokens; `own` may be empty.
  struct Reported {
    std::span<float> own;
    std::span<int32_t> top_ids;
    std::span<float> tops;
  };

  void report(const ExecContext& ctx, const TensorView& logits, const ConstTensorView& tokens,
              const Reported& to);

  int64_t max_rows_;
  Columns columns_;
  std::vector<int32_t> scored_;  // tokens of prompts, in the order of their logits
  SamplingTable table_;          // of the step that was staged last
  ConstTensorView scored_tokens_;
  AdjustedRows adjusted_;
  StepResults results_;
  DeviceTensor logprobs_;        // [kMaxScored]
  DeviceTensor top_ids_, tops_;  // [kMaxScored * kMaxTopLogprobs] i32 and f32
};

}  // namespace heddle
