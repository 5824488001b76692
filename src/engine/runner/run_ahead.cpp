#include <algorithm>
#include <bit>
#include <chrono>

#include "heddle/core/cuda_context.h"

#include "core/launches_block.h"
#include "core/math.h"
#include "engine/runner/model_runner.h"

// ModelRunner's steps that the host asks for before it knows the tokens of those in front.

namespace heddle {
namespace {

/// Sequences of the batch that a step of so many is padded to, so that few graphs serve all sizes.
int64_t padded_seqs(int64_t num_seqs, int64_t max_batch) {
  constexpr int64_t kStep = 8;
  const int64_t padded = num_seqs <= kStep
                             ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_seqs)))
                             : round_up(num_seqs, kStep);
  return std::min(padded, max_batch);
}

}  // namespace

bool ModelRunner::can_run_ahead(std::span<Sequence* const> rows) const {
  if (context_.exec().device.type == DeviceType::kCpu) return false;
  if (model_.config().recompute_above() > 0) return false;
  return std::ranges::all_of(rows, [this](const Sequence* row) {
    return row->draws && row->adjustment == nullptr && row->top_logprobs == 0 &&
           !row->scores_prompt && !has_vocabulary(*row);
  });
}

/// Whether an adapter of the row has an embedding or a head of its own.
bool ModelRunner::has_vocabulary(const Sequence& row) const {
  const model::AdapterVocabularies& own = adapters_.vocabularies;
  const auto has = [&](int32_t slot) {
    return own.embedding(slot) != nullptr || own.head(slot) != nullptr;
  };
  if (row.uses.empty()) return has(row.slot);
  return std::ranges::any_of(row.uses, [&](const auto& use) { return has(use.slot); });
}

/// Adds rows of one token, which use the page that no row has and whose results nobody reads.
void ModelRunner::pad_batch(int64_t num_seqs) {
  while (batch_.num_seqs() < num_seqs) {
    batch_.token_ids.push_back(0);
    batch_.sources.push_back(-1);
    batch_.positions.push_back(0);
    batch_.slot_ids.push_back(kNoAdapter);
    batch_.add_logits(static_cast<int32_t>(batch_.num_tokens() - 1),
                      static_cast<int32_t>(batch_.num_seqs()));
    batch_.q_indptr.push_back(static_cast<int32_t>(batch_.num_tokens()));
    batch_.pages.push_back(static_cast<int32_t>(pages_.num_pages()));
    batch_.page_indptr.push_back(static_cast<int32_t>(batch_.pages.size()));
    batch_.rotation_lengths.push_back(1);
    batch_.seq_slots.push_back(kNoAdapter);
    batch_.last_page_len.push_back(1);
  }
  batch_.num_decode = batch_.num_seqs();
}

/// All that the device does in a step, from arrays that are there.
void ModelRunner::compute(const model::StepInputs& inputs, const SamplingTable& table,
                          int64_t num_drawn) {
  const ExecContext& ctx = context_.exec();
  take_drawn_tokens(ctx, inputs.token_ids, results_.drawn(), inputs.sources);
  model_.forward(ctx, batch_, inputs, scratch_, cache_.layers(), adapters_, logits(),
                 &lora_seconds_);
  if (num_drawn == 0) return;
  const TensorView own = logits().narrow(0, 0, num_drawn).narrow(1, 0, model_.config().vocab_size);
  heddle::sample(ctx, results_.token_ids(num_drawn), results_.logprobs(num_drawn), own, table);
}

/// The first step of its kind runs as it is, which also loads the kernels; the second is recorded.
void ModelRunner::compute_recorded(const model::StepInputs& inputs, const SamplingTable& table,
                                   int64_t num_drawn) {
  const int64_t version = adapters_.layers.version();
  if (graphs_version_ != version) graphs_.clear();
  graphs_version_ = version;
  const auto any = [&](const auto& is_so) { return std::ranges::any_of(batch_.slot_ids, is_so); };
  const bool any_adapter = any([](int32_t slot) { return slot >= 0; });
  const bool any_affine = any([&](int32_t slot) { return adapters_.layers.has_affines(slot); });
  const auto [place, is_first] = graphs_.try_emplace({batch_.num_seqs(), any_adapter, any_affine});
  if (is_first) return compute(inputs, table, num_drawn);
  std::optional<DeviceGraph>& graph = place->second;
  if (!graph) {
    const auto begin = std::chrono::steady_clock::now();
    graph.emplace(context_.exec(), [&] { compute(inputs, table, num_drawn); });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    graph_seconds_ += taken.count();
    ++num_graphs_;
  }
  graph->launch(context_.exec());
}

void ModelRunner::launch(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens,
                         std::span<Sequence* const> drawing) {
  const ScopedDevice on_device(context_.exec().device);
  fill_batch(rows, num_tokens);
  const bool has_lists = !batch_.pair_starts.empty();
  const bool is_recorded =
      batch_.num_decode == batch_.num_seqs() && !has_lists && !launches_block();
  if (is_recorded) pad_batch(padded_seqs(batch_.num_seqs(), limits_.max_batch));
  const int64_t num_drawn = std::ssize(batch_.logit_tokens);
  SamplingTable table;
  const auto add_table = [&](StagedArrays& arrays) {
    table = add_sampling(arrays, drawing, num_drawn);
  };
  const model::StepInputs inputs = model_.stage(context_.exec(), batch_, scratch_, add_table);
  clock_.begin(context_.exec());
  if (is_recorded) {
    compute_recorded(inputs, table, num_drawn);
  } else {
    compute(inputs, table, num_drawn);
  }
  clock_.end(context_.exec());
  results_.send(context_.exec(), num_drawn);
  for (size_t i = 0; i < rows.size(); ++i) rows[i]->num_cached += num_tokens[i];
  for (size_t i = 0; i < drawing.size(); ++i) {
    ++drawing[i]->num_pending;
    drawing[i]->drawn_at = static_cast<int32_t>(i);
  }
}

void ModelRunner::collect(std::span<int32_t> token_ids, std::span<float> logprobs) {
  const ScopedDevice on_device(context_.exec().device);
  const auto begin = std::chrono::steady_clock::now();
  results_.receive(token_ids, logprobs);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  wait_seconds_ += waited.count();
  clock_.count();
  context_.check();
}

}  // namespace heddle
