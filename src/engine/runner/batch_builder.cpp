#include "engine/runner/batch_builder.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/math.h"
#include "engine/rows/scheduler.h"

namespace heddle {
namespace {

void add_to_batch(model::StepBatch& batch, const RowStep& row, int64_t page_size,
                  bool has_sources) {
  Sequence& sequence = *row.sequence;
  const RowAdapters& adapters = sequence.adapters;
  const int64_t end = row.first + row.count, num_pages = pages_for(end, page_size);
  sequence.cache.pages.grow_to(num_pages);
  // Those after `tokens` are pending, the last of them at drawn_at.
  const int64_t last = sequence.num_tokens() - 1;
  for (int64_t position = row.first; position < end; ++position) {
    const bool is_known = position < std::ssize(sequence.tokens);
    const auto source = static_cast<int32_t>(sequence.cache.drawn_at - (last - position));
    batch.token_ids.push_back(is_known ? sequence.tokens[static_cast<size_t>(position)] : 0);
    if (has_sources) batch.sources.push_back(is_known ? -1 : source);
    batch.positions.push_back(static_cast<int32_t>(position));
    batch.slot_ids.push_back(position < adapters.active_from ? kNoAdapter : adapters.slot);
  }
  batch.q_indptr.push_back(static_cast<int32_t>(batch.num_tokens()));
  for (const PageId page : sequence.cache.pages.ids().first(static_cast<size_t>(num_pages))) {
    batch.pages.push_back(static_cast<int32_t>(page));
  }
  batch.page_indptr.push_back(static_cast<int32_t>(batch.pages.size()));
  batch.rotation_lengths.push_back(std::max(sequence.cache.prefill_length, end));
  batch.last_page_len.push_back(static_cast<int32_t>((end - 1) % page_size + 1));
  batch.seq_slots.push_back(adapters.slot);
}

/// The adapters of the tokens that were added last, in a step that has a list of them.
void add_pairs(model::StepBatch& batch, const RowStep& row) {
  const RowAdapters& adapters = row.sequence->adapters;
  const model::AdapterUse alone{.slot = adapters.slot};
  const std::span<const model::AdapterUse> uses =
      adapters.uses.empty() ? std::span(&alone, 1) : std::span(adapters.uses);
  for (int64_t i = batch.num_tokens() - row.count; i < batch.num_tokens(); ++i) {
    if (batch.slot_ids[size_t(i)] != kNoAdapter) {
      for (const auto& [slot, scale] : uses) {
        batch.pair_slots.push_back(slot);
        batch.pair_scales.push_back(scale);
      }
    }
    batch.pair_starts.push_back(static_cast<int32_t>(batch.pair_slots.size()));
  }
  batch.max_pairs = std::max(batch.max_pairs, std::ssize(uses));
  batch.seq_uses.emplace_back(adapters.uses);
}

}  // namespace

void fill_batch(model::StepBatch& batch, const StepSchedule& step, int64_t page_size,
                bool has_sources) {
  batch.clear();
  batch.q_indptr.push_back(0);
  batch.page_indptr.push_back(0);
  const bool has_list = std::ranges::any_of(
      step.rows, [](const RowStep& row) { return !row.sequence->adapters.uses.empty(); });
  if (has_list) batch.pair_starts.push_back(0);
  for (const RowStep& row : step.rows) {
    add_to_batch(batch, row, page_size, has_sources);
    if (has_list) add_pairs(batch, row);
  }
  batch.num_decode = std::ranges::count_if(step.rows, &RowStep::decodes);
  batch.wants_hidden = std::ranges::any_of(step.rows, [](const RowStep& row) {
    return row.sequence->values != nullptr && row.sequence->values->pools();
  });
  const auto add_logits = [&](size_t seq, int64_t begin, int64_t count) {
    for (int64_t i = begin; i < begin + count; ++i) {
      batch.add_logits(static_cast<int32_t>(batch.q_indptr[seq] + i), static_cast<int32_t>(seq));
    }
  };
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const RowStep& row = step.rows[i];
    add_logits(i, row.count - row.num_logits, row.num_logits);
  }
  for (size_t i = 0; i < step.rows.size(); ++i) add_logits(i, 0, step.rows[i].num_scored);
}

void pad_batch(model::StepBatch& batch, int64_t max_seqs, int64_t spare_page) {
  constexpr int64_t kStep = 8;
  const int64_t num_seqs = batch.num_seqs();
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_seqs)));
  const int64_t padded = num_seqs <= kStep ? power : round_up(num_seqs, kStep);
  while (batch.num_seqs() < std::min(padded, max_seqs)) {
    batch.token_ids.push_back(0);
    batch.sources.push_back(-1);
    batch.positions.push_back(0);
    batch.slot_ids.push_back(kNoAdapter);
    batch.add_logits(static_cast<int32_t>(batch.num_tokens() - 1),
                     static_cast<int32_t>(batch.num_seqs()));
    batch.q_indptr.push_back(static_cast<int32_t>(batch.num_tokens()));
    batch.pages.push_back(static_cast<int32_t>(spare_page));
    batch.page_indptr.push_back(static_cast<int32_t>(batch.pages.size()));
    batch.rotation_lengths.push_back(1);
    batch.seq_slots.push_back(kNoAdapter);
    batch.last_page_len.push_back(1);
    if (batch.pair_starts.empty()) continue;
    batch.pair_starts.push_back(batch.pair_starts.back());
    batch.seq_uses.emplace_back();
  }
  // As many pairs as the sequences may have, so that arrays of one graph are of one size.
  const auto num_pairs = static_cast<size_t>(batch.num_seqs() * batch.max_pairs);
  batch.pair_slots.resize(num_pairs, kNoAdapter);
  batch.pair_scales.resize(num_pairs, 0.0f);
  batch.num_decode = batch.num_seqs();
}

}  // namespace heddle
