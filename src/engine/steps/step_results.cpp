#include "engine/steps/step_results.h"

#include <cstring>

namespace heddle {
namespace {

size_t bytes_of_ids(int64_t count) { return static_cast<size_t>(count) * sizeof(int32_t); }

}  // namespace

StepResults::StepResults(Device device, int64_t max_rows)
    : token_ids_(device, DType::kInt32, {max_rows}),
      logprobs_(device, DType::kFloat32, {max_rows}),
      mails_{{{StagingBytes(device, 2 * bytes_of_ids(max_rows)), DeviceEvent(device)},
              {StagingBytes(device, 2 * bytes_of_ids(max_rows)), DeviceEvent(device)}}} {}

void StepResults::send(const ExecContext& ctx, int64_t count) {
  Mail& mail = mails_[next_sent_++ % mails_.size()];
  const size_t bytes = bytes_of_ids(count);
  begin_copy_to_host(ctx, {mail.memory.get(), bytes}, token_ids_.view().raw());
  begin_copy_to_host(ctx, {mail.memory.get() + logprobs_begin(), bytes}, logprobs_.view().raw());
  mail.sent.record(ctx);
}

void StepResults::receive(std::span<int32_t> token_ids, std::span<float> logprobs) {
  const Mail& mail = mails_[next_received_++ % mails_.size()];
  mail.sent.wait();
  std::memcpy(token_ids.data(), mail.memory.get(), token_ids.size_bytes());
  std::memcpy(logprobs.data(), mail.memory.get() + logprobs_begin(), logprobs.size_bytes());
}

}  // namespace heddle
