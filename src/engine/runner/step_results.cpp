#include "engine/runner/step_results.h"

namespace heddle {

StepResults::StepResults(Device device, int64_t max_rows)
    : max_rows_(max_rows),
      results_(device, DType::kInt32, {2 * max_rows}),
      mails_{{{StagingBytes(device, results_.num_bytes()), DeviceEvent(device)},
              {StagingBytes(device, results_.num_bytes()), DeviceEvent(device)}}} {}

void StepResults::send(const ExecContext& ctx, int64_t count) {
  Mail& mail = mails_[next_sent_++ % mails_.size()];
  mail.count = static_cast<size_t>(count);
  const size_t bytes = logprobs_begin() + static_cast<size_t>(count) * sizeof(float);
  begin_copy_to_host(ctx, {mail.memory.get(), bytes}, results_.view().raw());
  mail.sent.record(ctx);
}

StepTokens StepResults::receive() {
  const Mail& mail = mails_[next_received_++ % mails_.size()];
  mail.sent.wait();
  return {{reinterpret_cast<const int32_t*>(mail.memory.get()), mail.count},
          {reinterpret_cast<const float*>(mail.memory.get() + logprobs_begin()), mail.count}};
}

}  // namespace heddle
