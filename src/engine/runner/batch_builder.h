#pragma once

#include <cstdint>

#include "heddle/core/thread_pool.h"

#include "engine/rows/scheduler.h"
#include "model/decoder/step_batch.h"

namespace heddle {

/// How many of a row's last num_queries tokens, the first of which sees kv_len keys, may read them
/// together: decode_bundle of all layers.
using BundleOf = FunctionRef<int64_t(int64_t kv_len, int64_t num_queries)>;

/// Writes a scheduled step as the model's batch, and allocates the pages of its tokens. Logits come
/// in the order of the schedule: first those that are drawn from, then those that score a prompt.
/// `is_gpu`: pending tokens are read on the device, and a row with drafts is several sequences of
/// one token, so that each takes the path of drawn tokens; bundle_of tells which of them read their
/// keys together. Throws Error where the pages were not reserved.
void fill_batch(model::StepBatch& batch, const StepSchedule& step, int64_t page_size, bool is_gpu,
                BundleOf bundle_of);

/// Adds sequences of one token, so that few graphs serve the steps of all sizes up to max_seqs.
/// They use a page that no request has, and their results are discarded.
void pad_batch(model::StepBatch& batch, int64_t max_seqs, int64_t spare_page);

}  // namespace heddle
