#pragma once

#include <array>
#include <span>

#include "core/device_graph.h"
#include "core/device_tensor.h"

namespace heddle {

/// What a step draws, on the device and on its way to the host. Two steps may be under way.
class StepResults {
 public:
  StepResults(Device device, int64_t max_rows);

  /// [count] i32 and f32: where a step writes what it draws, the same for all steps.
  [[nodiscard]] TensorView token_ids(int64_t count) const { return results_.rows(count); }
  [[nodiscard]] TensorView logprobs(int64_t count) const {
    return {results_.view().raw() + logprobs_begin(),
            DType::kFloat32,
            results_.view().device(),
            {count}};
  }
  /// All rows: for what reads tokens that were drawn before.
  [[nodiscard]] ConstTensorView drawn() const { return token_ids(max_rows_); }

  /// Begins to bring `count` of them to the host, in the order of ctx.stream.
  void send(const ExecContext& ctx, int64_t count);
  /// Waits for those that were sent first.
  void receive(std::span<int32_t> token_ids, std::span<float> logprobs);

 private:
  struct Mail {
    StagingBytes memory;  // as results_
    DeviceEvent sent;
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
