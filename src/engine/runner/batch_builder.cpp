#include "engine/runner/batch_builder.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/math.h"
#include "engine/rows/scheduler.h"

namespace heddle {
namespace {

/// Whether the tokens of the row are sequences of one token each, with the same pages: so a draft
/// takes the path of drawn tokens, and has the bits that it has alone. On the CPU there is one
/// path.
bool is_split(const RowStep& row, bool is_gpu) { return is_gpu && row.num_drafts > 0; }

int64_t num_seqs_of(const RowStep& row, bool is_gpu) {
  return is_split(row, is_gpu) ? row.count : 1;
}

/// A token of the row: one that is known, a draft, or one that is pending.
void add_token(model::StepBatch& batch, const RowStep& row, int64_t position, bool is_gpu) {
  const Sequence& sequence = *row.sequence;
  const int64_t past = position - std::ssize(sequence.tokens);
  int32_t id = 0, source = -1;
  if (past < 0) {
    id = sequence.tokens[static_cast<size_t>(position)];
  } else if (row.num_drafts > 0) {
    id = row.drafts()[static_cast<size_t>(past)];
  } else {  // the last of those that are pending is at drawn_at
    const int64_t last = sequence.num_tokens() - 1;
    source = static_cast<int32_t>(sequence.cache.drawn_at - (last - position));
  }
  const RowAdapters& adapters = sequence.adapters;
  batch.token_ids.push_back(id);
  if (is_gpu) batch.sources.push_back(source);
  batch.positions.push_back(static_cast<int32_t>(position));
  batch.slot_ids.push_back(position < adapters.active_from ? kNoAdapter : adapters.slot);
}

/// Tokens [begin, end) of the row.
void add_sequence(model::StepBatch& batch, const RowStep& row, int64_t begin, int64_t end,
                  int64_t page_size, bool is_gpu) {
  const Sequence& sequence = *row.sequence;
  const int64_t num_pages = pages_for(end, page_size);
  for (int64_t position = begin; position < end; ++position) {
    add_token(batch, row, position, is_gpu);
  }
  batch.q_indptr.push_back(static_cast<int32_t>(batch.num_tokens()));
  for (const PageId page : sequence.cache.pages.ids().first(static_cast<size_t>(num_pages))) {
    batch.pages.push_back(static_cast<int32_t>(page));
  }
  batch.page_indptr.push_back(static_cast<int32_t>(batch.pages.size()));
  batch.rotation_lengths.push_back(std::max(sequence.cache.prefill_length, end));
  batch.last_page_len.push_back(static_cast<int32_t>((end - 1) % page_size + 1));
  batch.seq_slots.push_back(sequence.adapters.slot);
}

void add_to_batch(model::StepBatch& batch, const RowStep& row, int64_t page_size, bool is_gpu) {
  const int64_t end = row.first + row.count;
  row.sequence->cache.pages.grow_to(pages_for(end, page_size));
  const int64_t each = is_split(row, is_gpu) ? 1 : row.count;
  for (int64_t begin = row.first; begin < end; begin += each) {
    add_sequence(batch, row, begin, begin + each, page_size, is_gpu);
  }
}

/// The adapters of the tokens that were added last, in a step that has a list of them.
void add_pairs(model::StepBatch& batch, const RowStep& row, int64_t num_seqs) {
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
  batch.seq_uses.insert(batch.seq_uses.end(), static_cast<size_t>(num_seqs), adapters.uses);
}

/// The bundles of a step that has drafts. Their size is rounded up to a power of two, so that few
/// graphs serve all steps.
void add_bundles(model::StepBatch& batch, const StepSchedule& step, BundleOf bundle_of) {
  std::vector<int32_t>& indptr = batch.bundle_indptr;
  indptr.push_back(0);
  int64_t largest = 1;
  for (const RowStep& row : step.rows) {
    if (!row.decodes) break;
    for (int64_t i = 0; i < row.count;) {
      const int64_t count = bundle_of(row.first + i + 1, row.count - i);
      i += count;
      largest = std::max(largest, count);
      indptr.push_back(indptr.back() + static_cast<int32_t>(count));
    }
  }
  batch.max_bundle = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(largest)));
  if (largest == 1) indptr.clear();
}

/// Of sequences or bundles, up to which a batch is padded.
int64_t padded_count(int64_t count) {
  constexpr int64_t kStep = 8;
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  return count <= kStep ? power : round_up(count, kStep);
}

}  // namespace

void fill_batch(model::StepBatch& batch, const StepSchedule& step, int64_t page_size, bool is_gpu,
                BundleOf bundle_of) {
  batch.clear();
  batch.q_indptr.push_back(0);
  batch.page_indptr.push_back(0);
  const bool has_list = std::ranges::any_of(
      step.rows, [](const RowStep& row) { return !row.sequence->adapters.uses.empty(); });
  if (has_list) batch.pair_starts.push_back(0);
  for (const RowStep& row : step.rows) {
    const int64_t num_seqs = num_seqs_of(row, is_gpu);
    add_to_batch(batch, row, page_size, is_gpu);
    if (has_list) add_pairs(batch, row, num_seqs);
    if (row.decodes) batch.num_decode += num_seqs;
  }
  const auto has_drafts = [](const RowStep& row) { return row.num_drafts > 0; };
  if (is_gpu && std::ranges::any_of(step.rows, has_drafts)) add_bundles(batch, step, bundle_of);
  batch.wants_hidden = std::ranges::any_of(step.rows, [](const RowStep& row) {
    return row.sequence->values != nullptr && row.sequence->values->pools();
  });
  const auto add_logits = [&](const auto& begin_of, const auto& count_of) {
    int64_t seq = 0;
    for (const RowStep& row : step.rows) {
      const int64_t begin = begin_of(row), end = begin + count_of(row);
      for (int64_t i = begin; i < end; ++i) {
        batch.add_logits(static_cast<int32_t>(row.tokens_begin + i),
                         static_cast<int32_t>(seq + (is_split(row, is_gpu) ? i : 0)));
      }
      seq += num_seqs_of(row, is_gpu);
    }
  };
  add_logits([](const RowStep& row) { return row.count - row.num_logits; },
             [](const RowStep& row) { return row.num_logits; });
  add_logits([](const RowStep& /*row*/) { return int64_t{0}; },
             [](const RowStep& row) { return row.num_scored; });
}

void pad_batch(model::StepBatch& batch, int64_t max_seqs, int64_t spare_page) {
  const int64_t padded = padded_count(batch.num_seqs());
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
    if (!batch.bundle_indptr.empty()) {
      batch.bundle_indptr.push_back(batch.bundle_indptr.back() + 1);
    }
    if (batch.pair_starts.empty()) continue;
    batch.pair_starts.push_back(batch.pair_starts.back());
    batch.seq_uses.emplace_back();
  }
  // As many pairs as the sequences may have, so that arrays of one graph are of one size.
  const auto num_pairs = static_cast<size_t>(batch.num_seqs() * batch.max_pairs);
  batch.pair_slots.resize(num_pairs, kNoAdapter);
  batch.pair_scales.resize(num_pairs, 0.0f);
  batch.num_decode = batch.num_seqs();
  if (batch.bundle_indptr.empty()) return;
  const int64_t num_bundles = std::min(padded_count(std::ssize(batch.bundle_indptr) - 1), max_seqs);
  batch.bundle_indptr.resize(static_cast<size_t>(num_bundles + 1), batch.bundle_indptr.back());
}

}  // namespace heddle
