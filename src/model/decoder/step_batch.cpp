#include "model/decoder/step_batch.h"

namespace heddle::model {

void StepBatch::clear() {
  for (std::vector<int32_t>* values :
       {&token_ids, &positions, &slot_ids, &q_indptr, &page_indptr, &pages, &last_page_len,
        &logit_tokens, &seq_slots, &logit_seqs}) {
    values->clear();
  }
  rotation_lengths.clear();
}

void StepBatch::reserve(const StepLimits& limits) {
  const auto reserve = [](std::vector<int32_t>& values, int64_t count) {
    values.reserve(static_cast<size_t>(count));
  };
  for (auto* values : {&token_ids, &positions, &slot_ids}) reserve(*values, limits.num_tokens);
  for (auto* values : {&q_indptr, &page_indptr}) reserve(*values, limits.num_seqs + 1);
  reserve(pages, limits.num_pages);
  for (auto* values : {&last_page_len, &seq_slots}) reserve(*values, limits.num_seqs);
  for (auto* values : {&logit_tokens, &logit_seqs}) reserve(*values, limits.num_logit_rows);
  rotation_lengths.reserve(static_cast<size_t>(limits.num_seqs));
}

size_t StepInputs::bytes_for(const StepLimits& limits) {
  const auto bytes = StagedArrays::bytes_for<int32_t>;
  return 3 * bytes(limits.num_tokens) + 2 * bytes(limits.num_seqs + 1) + bytes(limits.num_seqs) +
         bytes(limits.num_pages) + bytes(limits.num_logit_rows);
}

StepInputs StepInputs::copy(const ExecContext& ctx, const StepBatch& batch, StagedArrays& arrays) {
  arrays.clear();
  const StepInputs inputs{.token_ids = arrays.add(batch.token_ids),
                          .positions = arrays.add(batch.positions),
                          .slot_ids = arrays.add(batch.slot_ids),
                          .q_indptr = arrays.add(batch.q_indptr),
                          .logit_tokens = arrays.add(batch.logit_tokens),
                          .pages = {.page_indptr = arrays.add(batch.page_indptr),
                                    .pages = arrays.add(batch.pages),
                                    .last_page_len = arrays.add(batch.last_page_len)}};
  arrays.copy(ctx);
  return inputs;
}

}  // namespace heddle::model
