#include <array>

#include "cuda/copies/host_copies.h"

#include "ops/lora_device/checks/validate.h"

namespace heddle::cuda::lora {
namespace {

LoraTable copy_of(const LoraTable& table, HostCopies& copy) {
  LoraTable result = table;
  if (table.pointers == nullptr) return result;
  const std::array<int64_t, 1> shape{table.num_slots}, strides{table.pointer_stride};
  const ConstTensorView there(reinterpret_cast<const std::byte*>(table.pointers), DType::kInt64,
                              table.device, shape, strides);
  result.pointers = copy(there).data<int64_t>();
  return result;
}

}  // namespace

void validate_batch(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
                    const LoraTable* a, const LoraTable* b) {
  if (is_captured(ctx.stream)) return;
  HostCopies copy(ctx.stream);
  LoraBatch on_host;
  on_host.slot_ids = copy(batch.slot_ids);
  on_host.seg_starts = copy(batch.seg_starts);
  on_host.seg_ends = copy(batch.seg_ends);
  on_host.seg_lens = copy(batch.seg_lens);
  on_host.seg_slots = copy(batch.seg_slots);
  on_host.pair_starts = copy(batch.pair_starts);
  on_host.pair_slots = copy(batch.pair_slots);
  on_host.max_pairs = batch.max_pairs;
  const LoraTable a_on_host = a != nullptr ? copy_of(*a, copy) : LoraTable{};
  const LoraTable b_on_host = b != nullptr ? copy_of(*b, copy) : LoraTable{};
  copy.wait();
  if (a != nullptr) heddle::validate_batch(on_host, num_tokens, "a", a_on_host);
  if (b != nullptr) heddle::validate_batch(on_host, num_tokens, "b", b_on_host);
}

}  // namespace heddle::cuda::lora
