#pragma once

#include <array>
#include <span>

#include "core/device_graph.h"
#include "core/device_tensor.h"

namespace heddle {

/// What a step drew, in host memory: one token and log-probability for each row of its logits.
struct StepTokens {
  std::span<const int32_t> ids;
  std::span<const float> logprobs;
};

/// What a step draws, on the device and on its way to the host. Two steps may be in flight.
class StepResults {
 public:
  StepResults(Device device, int64_t max_rows);

  /// [count] i32 and f32: where each step writes what it draws.
  [[nodiscard]] TensorView token_ids(int64_t count) const { return results_.rows(count); }
  [[nodiscard]] TensorView logprobs(int64_t count) const {
    return {results_.view().raw() + logprobs_begin(),
            DType::kFloat32,
            results_.view().device(),
            {count}};
  }
  /// [max_rows] i32: the tokens of the last step, for the next one.
  [[nodiscard]] ConstTensorView drawn() const { return token_ids(max_rows_); }

  /// Begins to copy `count` of them to the host, in the order of ctx.stream.
  void send(const ExecContext& ctx, int64_t count);
  /// Waits for the copy that was begun first. Valid until the second next `send`.
  [[nodiscard]] StepTokens receive();

 private:
  struct Mail {
    StagingBytes memory;  // as results_
    DeviceEvent sent;
    size_t count = 0;
  };

  [[nodiscard]] size_t logprobs_begin() const {
    return static_cast<size_t>(max_rows_) * sizeof(int32_t);
  }

  int64_t max_rows_;
  DeviceTensor results_;  // [max_rows] token ids, then as many log-probabilities: one copy
  std::array<Mail, 2> mails_;
  size_t next_sent_ = 0, next_received_ = 0;
};

}  // namespace heddle
