#include "model/decoder/step_batch.h"

namespace heddle::model {

void StepBatch::add_logits(int32_t token, int32_t seq) {
  logit_tokens.push_back(token);
  logit_seqs.push_back(seq);
  logit_slots.push_back(slot_ids[static_cast<size_t>(token)] == kNoAdapter ? kNoAdapter : 0);
}

void StepBatch::clear() {
  for (std::vector<int32_t>* values :
       {&token_ids, &positions, &slot_ids, &q_indptr, &page_indptr, &pages, &last_page_len,
        &logit_tokens, &seq_slots, &logit_seqs, &logit_slots, &pair_starts, &pair_slots, &sources,
        &bundle_indptr}) {
    values->clear();
  }
  rotation_lengths.clear();
  pair_scales.clear();
  seq_uses.clear();
  max_pairs = num_decode = 0;
  max_bundle = 1;
  wants_hidden = false;
}

void StepBatch::reserve(const StepLimits& limits) {
  const auto reserve = [](std::vector<int32_t>& values, int64_t count) {
    values.reserve(static_cast<size_t>(count));
  };
  for (auto* values : {&token_ids, &positions, &slot_ids, &sources}) {
    reserve(*values, limits.num_tokens);
  }
  for (auto* values : {&q_indptr, &page_indptr, &bundle_indptr})
    reserve(*values, limits.num_seqs + 1);
  reserve(pages, limits.num_pages);
  for (auto* values : {&last_page_len, &seq_slots}) reserve(*values, limits.num_seqs);
  for (auto* values : {&logit_tokens, &logit_seqs, &logit_slots}) {
    reserve(*values, limits.num_logit_rows);
  }
  rotation_lengths.reserve(static_cast<size_t>(limits.num_seqs));
  if (limits.max_pairs == 0) return;
  reserve(pair_starts, limits.num_tokens + 1);
  reserve(pair_slots, limits.num_tokens * limits.max_pairs);
  pair_scales.reserve(pair_slots.capacity());
  seq_uses.reserve(static_cast<size_t>(limits.num_seqs));
}

size_t StepInputs::bytes_for(const StepLimits& limits) {
  const auto bytes = StagedArrays::bytes_for<int32_t>;
  const int64_t num_pairs = limits.num_tokens * limits.max_pairs;
  const size_t pairs = num_pairs == 0 ? 0
                                      : bytes(limits.num_tokens + 1) + bytes(num_pairs) +
                                            StagedArrays::bytes_for<float>(num_pairs);
  return 4 * bytes(limits.num_tokens) + 3 * bytes(limits.num_seqs + 1) + bytes(limits.num_seqs) +
         bytes(limits.num_pages) + 2 * bytes(limits.num_logit_rows) + pairs + limits.more_bytes;
}

StepInputs StepInputs::copy(const ExecContext& ctx, const StepBatch& batch, StagedArrays& arrays,
                            const StepLimits& limits, AddMore add_more) {
  arrays.clear();
  // In memory of this object's own, so the views may be written.
  const auto writable = [](const ConstTensorView& view) {
    return TensorView(const_cast<std::byte*>(view.raw()), view.dtype(), view.device(),
                      view.shape());
  };
  StepInputs inputs{.token_ids = writable(arrays.add(batch.token_ids)),
                    .positions = arrays.add(batch.positions),
                    .q_indptr = arrays.add(batch.q_indptr),
                    .logit_tokens = arrays.add(batch.logit_tokens),
                    .logit_slots = arrays.add(batch.logit_slots),
                    .sources = {},
                    .bundle_indptr = {},
                    .max_bundle = batch.max_bundle,
                    .adapters = LoraBatch::from_ids(arrays.add(batch.slot_ids)),
                    .pages = {.page_indptr = arrays.add(batch.page_indptr),
                              .pages = {},
                              .last_page_len = arrays.add(batch.last_page_len)}};
  if (!batch.sources.empty()) inputs.sources = arrays.add(batch.sources);
  if (!batch.bundle_indptr.empty()) inputs.bundle_indptr = arrays.add(batch.bundle_indptr);
  if (!batch.pair_starts.empty()) {
    const ConstTensorView starts = arrays.add(batch.pair_starts);
    const ConstTensorView slots = arrays.add(batch.pair_slots);
    const ConstTensorView scales = arrays.add(batch.pair_scales);
    inputs.adapters = LoraBatch::from_pairs(starts, slots, scales, batch.max_pairs);
  }
  add_more(arrays);
  inputs.pages.pages = arrays.add(batch.pages, limits.num_pages);  // last: few of them are copied
  arrays.copy(ctx);
  return inputs;
}

}  // namespace heddle::model
