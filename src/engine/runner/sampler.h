#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "heddle/core/thread_pool.h"
#include "heddle/ops/sampling.h"

#include "core/device_graph.h"
#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/rows/scheduler.h"
#include "engine/runner/adjusted_rows.h"
#include "engine/runner/masked_rows.h"

namespace heddle {

/// What a step drew, in host memory: a token and a log-probability for each row of its logits.
struct StepTokens {
  std::span<const int32_t> ids;
  std::span<const float> logprobs;

  /// The tokens that the row drew.
  [[nodiscard]] std::span<const int32_t> of(const RowStep& row) const {
    return ids.subspan(static_cast<size_t>(row.logits_begin), static_cast<size_t>(row.num_logits));
  }
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

/// Draws the tokens of a step from its logits, and copies them to the host with the
/// log-probabilities that are reported. Two steps may be in flight. All memory of the device is
/// allocated beforehand.
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
  /// Room for the masks of so many rows, of logits for so many tokens, as above.
  void reserve_masks(Device device, int64_t num_rows, int64_t num_tokens) {
    masked_.reserve(device, num_rows, num_tokens);
  }

  /// Adds what drawing reads of the host's, for num_rows rows of logits: those that no request has
  /// are greedy.
  void stage(StagedArrays& arrays, const StepSchedule& step, int64_t num_rows);
  /// Draws a token from each of the rows that were staged, and computes what is reported: the most
  /// likely tokens of each place, and the log-probabilities of prompts.
  void draw(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits);
  /// Begins to copy all of it to the host, in the order of ctx.stream.
  void send(const ExecContext& ctx);
  /// Waits for the copy that was begun first, which is that of `step`. Stores what is reported in
  /// the completions of its requests. The result is valid until the second next `send`.
  [[nodiscard]] StepTokens receive(const StepSchedule& step);
  /// [max_rows] i32 on the device: the tokens of the last step, for the next one.
  [[nodiscard]] TensorView drawn() const { return results_.rows(max_rows_); }

 private:
  /// Log-probabilities of some rows of logits of one request, which are reported: of the tokens
  /// [count] f32, then the most likely ones [count, k] i32 and theirs [count, k] f32.
  struct Report {
    size_t row;  // of the step
    int64_t count, k;
    bool is_of_prompt;
    int64_t begin;  // in words of 4 bytes, after what was drawn
    [[nodiscard]] int64_t end() const { return begin + count * (1 + 2 * k); }
  };
  /// What a step drew and reports, on its way to the host.
  struct Mail {
    StagingBytes memory;  // as results_
    DeviceEvent sent;
    size_t count = 0;
    std::vector<Report> reports{};
  };

  [[nodiscard]] Mail& next_mail() { return mails_[next_sent_ % mails_.size()]; }
  [[nodiscard]] TensorView words(DType dtype, int64_t begin,
                                 std::initializer_list<int64_t> shape) const;
  [[nodiscard]] TensorView logprobs() const {
    return words(DType::kFloat32, max_rows_, {max_rows_});
  }
  void draw_rows(const ExecContext& ctx, int64_t first, int64_t last, const StepLogits& logits);
  void score_adjusted(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits);
  void compute_reports(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits);
  void compute_report(const ExecContext& ctx, const Report& report, const TensorView& logits,
                      const ConstTensorView& tokens);
  static void store(const Report& report, const RowStep& row, int64_t num_taken,
                    const std::byte* from);

  int64_t max_rows_;
  std::vector<float> floats_;  // a column of the table at a time
  std::vector<int32_t> ints_;
  std::vector<int64_t> longs_;
  SamplingTable table_;            // of the step that was staged last
  ConstTensorView scored_tokens_;  // of its prompts, in the order of their logits
  AdjustedRows adjusted_;
  MaskedRows masked_;
  DeviceTensor results_;  // [words] i32: of max_rows tokens, their log-probabilities, and reports
  std::array<Mail, 2> mails_;
  size_t next_sent_ = 0, next_received_ = 0;
};

}  // namespace heddle
