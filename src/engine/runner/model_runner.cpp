#include "engine/runner/model_runner.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"
#include "heddle/ops/sampling.h"

#include "engine/options/available_memory.h"
#include "engine/options/request_check.h"
#include "engine/options/room_for.h"
#include "engine/rows/scheduler.h"
#include "engine/rows/shared_prefix.h"

namespace heddle {

namespace {

using Limits = ModelRunner::Limits;

/// Tokens of prompts that a step scores, at most: each needs a row of logits.
constexpr int64_t kMostScored = 32;

constexpr const char* kStepOptions =
    "a smaller prefill_chunk (--prefill-chunk), max_batch (--max-batch) or kv_memory (--kv-memory)";

/// Pages of a cache in which no row ever waits for pages.
int64_t most_pages(const Limits& limits) {
  return std::min<int64_t>(limits.max_batch * pages_for(limits.max_context, limits.page_size),
                           std::numeric_limits<std::underlying_type_t<PageId>>::max());
}

/// Tokens of the largest step: all rows answer, or some take in a chunk of their prompts. A chunk
/// may be given larger than all prompts together.
int64_t most_tokens(const Limits& limits) {
  const int64_t num_tokens =
      limits.max_batch + std::min(limits.prefill_chunk, limits.max_batch * limits.max_context);
  HEDDLE_CHECK(num_tokens <= std::numeric_limits<int32_t>::max(), "prefill_chunk is ",
               limits.prefill_chunk, ", expected at most ",
               std::numeric_limits<int32_t>::max() - limits.max_batch,
               " with max_batch = ", limits.max_batch);
  return num_tokens;
}

/// Of a SamplingTable: four arrays of 32 bits an entry, two of 64.
size_t sampling_bytes(int64_t num_rows) {
  return 4 * StagedArrays::bytes_for<float>(num_rows) +
         2 * StagedArrays::bytes_for<int64_t>(num_rows);
}

model::StepLimits step_limits(const Limits& limits, int64_t num_pages) {
  return {.num_tokens = most_tokens(limits),
          .num_seqs = limits.max_batch,
          .num_pages = num_pages + limits.max_batch,  // with a page for rows that pad a batch
          .num_logit_rows = limits.max_batch + kMostScored,
          .more_bytes = sampling_bytes(limits.max_batch)};
}

KvCache::Shape kv_shape(Device device, const model::Decoder& model, const Limits& limits) {
  const model::DecoderConfig& config = model.config();
  const DType activations = model.weights().activations;
  const DType dtype = limits.kv_dtype.value_or(activations);
  HEDDLE_CHECK(device.type == DeviceType::kCpu || dtype == activations, "kv_type is ", dtype,
               ", but this model on ", device, " needs ", activations,
               "; device cpu (--device cpu) takes any type");
  return {static_cast<int>(config.num_layers), static_cast<int>(config.num_kv_heads),
          limits.page_size, static_cast<int>(config.head_dim), dtype};
}

}  // namespace

ModelRunner::ModelRunner(Device device, const model::ModelFiles& files, const Limits& limits,
                         const model::LoadOptions& load)
    : limits_(limits),
      context_(device, limits.num_threads),
      model_(files.config(), room_for("the weights", "weights (--weights) of fewer bits",
                                      [&] {
                                        return model::load_weights(context_.exec(), files.weights(),
                                                                   files.config(),
                                                                   files.tensor_names(), load);
                                      })),
      adapter_memory_(device),
      steps_so_far_(device),
      adapters_{.layers = {files.config().dims(),
                           model::LoraForm::of(device.type, model_.weights().activations)},
                .vocabularies = {}},
      kv_shape_(kv_shape(device, model_, limits)),
      // The weights are there by now, so they no longer count as available.
      pages_(choose_num_pages(limits.kv_memory, available_memory(device), kv_shape_,
                              most_pages(limits))),
      cache_(room_for("the KV cache", "a smaller kv_memory (--kv-memory)",
                      [&] {
                        const int64_t padding = device.type == DeviceType::kCpu ? 0 : 1;
                        return KvCache(device, kv_shape_, pages_.num_pages() + padding);
                      })),
      scratch_(room_for("what the largest step computes", kStepOptions,
                        [&] {
                          return model::DecoderScratch(device, files.config(),
                                                       step_limits(limits, pages_.num_pages()),
                                                       model_.weights().activations);
                        })),
      logits_(room_for("the logits of the largest step", "a smaller max_batch (--max-batch)",
                       [&] {
                         return DeviceTensor(
                             device, DType::kFloat32,
                             {limits.max_batch + kMostScored, files.config().vocab_size});
                       })),
      sampling_(device, sampling_bytes(limits.max_batch)),
      results_(device, limits.max_batch),
      scored_logprob_(device, DType::kFloat32, {1}),
      top_ids_(device, DType::kInt32, {1, kMaxTopLogprobs}),
      tops_(device, DType::kFloat32, {1, kMaxTopLogprobs}),
      clock_(device) {
  reserve_workspace(0);
  reserve_host_memory();
}

void ModelRunner::reserve_workspace(int max_rank) {
  const size_t num_bytes =
      std::max(model_.workspace_bytes(context_.exec().device, largest_step(), max_rank),
               sample_workspace_bytes(limits_.max_batch, logits_.view().size(1)));
  room_for("the workspace of the largest step", kStepOptions,
           [&] { context_.reserve_workspace(num_bytes); });
}

/// The limits of steps, with as many adapters of a row as there is room for.
model::StepLimits ModelRunner::largest_step() const {
  model::StepLimits limits = step_limits(limits_, pages_.num_pages());
  limits.max_pairs = max_pairs_;
  return limits;
}

/// The largest step finds room in what the host writes for it.
void ModelRunner::reserve_host_memory() {
  const model::StepLimits limits = step_limits(limits_, pages_.num_pages());
  batch_.reserve(limits);
  const auto num_rows = static_cast<size_t>(limits.num_seqs);
  SamplingColumns& columns = sampling_columns_;
  for (auto* column : {&columns.temperature, &columns.top_p, &columns.min_p}) {
    column->reserve(num_rows);
  }
  columns.top_k.reserve(num_rows);
  scored_.reserve(static_cast<size_t>(kMostScored));
  seqs_.reserve(num_rows);
  for (auto* column : {&columns.seed, &columns.step}) column->reserve(num_rows);
}

int32_t ModelRunner::add_adapter(PreparedAdapter adapter) {
  const ScopedDevice on_device(context_.exec().device);
  const auto& head = adapter.vocabulary.head;
  if (head && head->num_tokens() > logits_.view().size(1)) {
    logits_ = DeviceTensor(context_.exec().device, DType::kFloat32,
                           {limits_.max_batch + kMostScored, head->num_tokens()});
    graphs_.clear();
  }
  const int max_rank = std::max(adapters_.layers.max_rank(), adapter.max_rank);
  reserve_workspace(max_rank);
  if (head) {
    context_.reserve_workspace(
        head->workspace_bytes(context_.exec().device, limits_.max_batch + kMostScored));
  }
  if (scratch_.reserve_plans(context_.exec().device, max_rank)) graphs_.clear();
  if (adapter.layers.has_affines()) {
    scratch_.reserve_affines(context_.exec().device, model_.block());
  }
  adapters_.vocabularies.reserve();
  const int32_t slot = adapters_.layers.add(context_.exec(), std::move(adapter.layers));
  adapters_.vocabularies.put(slot, std::move(adapter.vocabulary));
  return slot;
}

std::string_view ModelRunner::runs_alone(const model::Adapter& adapter) const {
  const ScopedDevice on_device(context_.exec().device);
  const model::DecoderWeights& weights = model_.weights();
  return model::without_sum(context_.loading(), adapter, weights.embedding, weights.output);
}

void ModelRunner::reserve_for(const Sequence& row) {
  if (std::ssize(row.uses) <= max_pairs_) return;
  const ScopedDevice on_device(context_.exec().device);
  model::StepLimits limits = largest_step();
  limits.max_pairs = std::ssize(row.uses);
  batch_.reserve(limits);
  context_.reserve_workspace(
      model_.workspace_bytes(context_.exec().device, limits, adapters_.layers.max_rank()));
  scratch_.reserve_pairs(context_.exec().device, limits.max_pairs);
  graphs_.clear();
  max_pairs_ = limits.max_pairs;
}

int64_t ModelRunner::num_input_tokens(int32_t slot) const {
  const auto* const own = adapters_.vocabularies.embedding(slot);
  return own == nullptr ? model_.config().vocab_size : own->num_tokens();
}

int64_t ModelRunner::num_logits(int32_t slot) const {
  const auto* const own = adapters_.vocabularies.head(slot);
  return own == nullptr ? model_.config().vocab_size : own->num_tokens();
}

int32_t ModelRunner::slot_of_logits(int64_t row) const {
  return batch_.seq_slots[size_t(batch_.logit_seqs[size_t(row)])];
}

TensorView ModelRunner::logits() const {
  return logits_.rows(static_cast<int64_t>(batch_.logit_tokens.size()));
}

std::vector<float> ModelRunner::copy_logits() const {
  const ScopedDevice on_device(context_.exec().device);
  std::vector<float> values;
  for (int64_t row = 0; row < logits().size(0); ++row) {
    const int64_t width = num_logits(slot_of_logits(row));
    values.resize(values.size() + static_cast<size_t>(width));
    copy_to_host(context_.exec(), std::span(values).last(static_cast<size_t>(width)),
                 logits().narrow(0, row, 1).narrow(1, 0, width));
  }
  return values;
}

void ModelRunner::add_to_batch(Sequence& row, int64_t num_tokens) {
  const int64_t end = row.num_cached + num_tokens;
  const int64_t num_pages = pages_for(end, limits_.page_size);
  const bool has_sources = context_.exec().device.type != DeviceType::kCpu;
  row.pages.grow_to(num_pages);
  for (int64_t position = row.num_cached; position < end; ++position) {
    const bool is_known = position < std::ssize(row.tokens);
    batch_.token_ids.push_back(is_known ? row.tokens[static_cast<size_t>(position)] : 0);
    if (has_sources) batch_.sources.push_back(is_known ? -1 : row.drawn_at);
    batch_.positions.push_back(static_cast<int32_t>(position));
    batch_.slot_ids.push_back(position < row.active_from ? kNoAdapter : row.slot);
  }
  batch_.q_indptr.push_back(static_cast<int32_t>(batch_.num_tokens()));
  for (const PageId page : row.pages.ids().first(static_cast<size_t>(num_pages))) {
    batch_.pages.push_back(static_cast<int32_t>(page));
  }
  batch_.page_indptr.push_back(static_cast<int32_t>(batch_.pages.size()));
  batch_.rotation_lengths.push_back(std::max(row.taken_in_at, end));
  batch_.last_page_len.push_back(static_cast<int32_t>((end - 1) % limits_.page_size + 1));
  if (row.scores_prompt && row.completion.token_ids.empty()) {
    for (int64_t at = row.num_cached; at < std::min(end, row.prompt_tokens - 1); ++at) {
      scored_.push_back({.row = &row,
                         .position = at,
                         .token = static_cast<int32_t>(batch_.num_tokens() - end + at),
                         .seq = static_cast<int32_t>(batch_.seq_slots.size())});
    }
  }
  batch_.seq_slots.push_back(row.slot);
}

/// The adapters of the tokens that were added last, in a step that has a list of them.
void ModelRunner::add_pairs(const Sequence& row, int64_t num_tokens) {
  const model::AdapterUse alone{.slot = row.slot};
  const std::span<const model::AdapterUse> uses =
      row.uses.empty() ? std::span(&alone, 1) : std::span(row.uses);
  for (int64_t i = batch_.num_tokens() - num_tokens; i < batch_.num_tokens(); ++i) {
    if (batch_.slot_ids[size_t(i)] != kNoAdapter) {
      for (const auto& [slot, scale] : uses) {
        batch_.pair_slots.push_back(slot);
        batch_.pair_scales.push_back(scale);
      }
    }
    batch_.pair_starts.push_back(static_cast<int32_t>(batch_.pair_slots.size()));
  }
  batch_.max_pairs = std::max(batch_.max_pairs, std::ssize(uses));
  batch_.seq_uses.emplace_back(row.uses);
}

/// The rows' tokens; on a GPU drawn ones before those of prompts.
void ModelRunner::fill_batch(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens) {
  batch_.clear();
  scored_.clear();
  seqs_.assign(rows.size(), -1);
  batch_.q_indptr.push_back(0);
  batch_.page_indptr.push_back(0);
  bool has_list = false;
  for (size_t i = 0; i < rows.size(); ++i) has_list |= num_tokens[i] > 0 && !rows[i]->uses.empty();
  if (has_list) batch_.pair_starts.push_back(0);
  const bool has_paths = context_.exec().device.type != DeviceType::kCpu;
  for (const bool drawn : {true, false}) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (num_tokens[i] == 0 || (has_paths && rows[i]->runs_drawn_token()) != drawn) continue;
      seqs_[i] = static_cast<int32_t>(batch_.seq_slots.size());
      add_to_batch(*rows[i], num_tokens[i]);
      if (has_list) add_pairs(*rows[i], num_tokens[i]);
    }
    if (drawn) batch_.num_decode = batch_.num_seqs();
  }
  add_logits(rows, num_tokens);
}

/// The tokens of which a row draws: the last ones, in the order of the rows.
void ModelRunner::add_logits(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t end = rows[i]->num_cached + num_tokens[i];
    if (seqs_[i] < 0 || end < rows[i]->num_tokens()) continue;
    batch_.add_logits(batch_.q_indptr[static_cast<size_t>(seqs_[i]) + 1] - 1, seqs_[i]);
  }
}

void ModelRunner::run(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens) {
  const ScopedDevice on_device(context_.exec().device);
  fill_batch(rows, num_tokens);
  const auto num_drawing = static_cast<int64_t>(batch_.logit_tokens.size());
  for (const Scored& scored : scored_) batch_.add_logits(scored.token, scored.seq);
  model_.forward(context_.exec(), batch_, scratch_, cache_.layers(), adapters_, logits(),
                 &lora_seconds_);
  for (size_t i = 0; i < scored_.size(); ++i) {
    score(*scored_[i].row, num_drawing + static_cast<int64_t>(i), scored_[i].position);
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i]->num_cached += num_tokens[i];
}

void ModelRunner::limit_scored(std::span<Sequence* const> rows,
                               std::span<int64_t> num_tokens) const {
  int64_t left = kMostScored;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sequence& row = *rows[i];
    if (!row.scores_prompt || !row.completion.token_ids.empty()) continue;
    const int64_t wanted = row.prompt_tokens - 1 - row.num_cached;  // the last one scores nothing
    if (num_tokens[i] > left && wanted > left) num_tokens[i] = left;
    left -= std::min(num_tokens[i], std::max<int64_t>(wanted, 0));
  }
}

/// Tells the row what its logits at a position of the prompt make of the token behind it.
void ModelRunner::score(Sequence& row, int64_t logits_row, int64_t position) {
  const ExecContext& ctx = context_.exec();
  const auto next = static_cast<size_t>(position + 1), k = static_cast<size_t>(row.top_logprobs);
  Completion& to = row.completion;
  sampling_.clear();
  const ConstTensorView token = sampling_.add(std::span<const int32_t>(&row.tokens[next], 1));
  sampling_.copy(ctx);
  const bool has_top = k > 0;
  const TensorView ids = has_top ? top_ids_.view().narrow(1, 0, row.top_logprobs) : TensorView{};
  const TensorView tops = has_top ? tops_.view().narrow(1, 0, row.top_logprobs) : TensorView{};
  const TensorView logprob = scored_logprob_.view();
  const TensorView own =
      logits().narrow(0, logits_row, 1).narrow(1, 0, num_logits(slot_of_logits(logits_row)));
  token_logprobs(ctx, logprob, ids, tops, own, token);
  copy_to_host(ctx, std::span(to.prompt_logprobs).subspan(next, 1), logprob);
  if (!has_top) return;
  copy_to_host(ctx, std::span(to.prompt_top_token_ids).subspan(next * k, k), ids);
  copy_to_host(ctx, std::span(to.prompt_top_logprobs).subspan(next * k, k), tops);
}

/// The most likely tokens in the place of the one that is drawn.
void ModelRunner::add_top_logprobs(Sequence& row, int64_t logits_row) {
  const ExecContext& ctx = context_.exec();
  const auto k = static_cast<size_t>(row.top_logprobs);
  const TensorView ids = top_ids_.view().narrow(1, 0, row.top_logprobs);
  const TensorView tops = tops_.view().narrow(1, 0, row.top_logprobs);
  const TensorView own =
      logits().narrow(0, logits_row, 1).narrow(1, 0, num_logits(slot_of_logits(logits_row)));
  token_logprobs(ctx, scored_logprob_.view(), ids, tops, own,
                 results_.token_ids(limits_.max_batch).narrow(0, logits_row, 1));
  Completion& to = row.completion;
  to.top_token_ids.resize(to.top_token_ids.size() + k);
  to.top_logprobs.resize(to.top_logprobs.size() + k);
  copy_to_host(ctx, std::span(to.top_token_ids).last(k), ids);
  copy_to_host(ctx, std::span(to.top_logprobs).last(k), tops);
}

void ModelRunner::prepare(Sequence& row) const {
  const auto length = static_cast<int64_t>(row.tokens.size());
  const int64_t bound = model_.config().recompute_above();
  const bool crosses = bound > 0 && row.taken_in_at <= bound && length > bound;
  if (row.num_cached == 0 || crosses) {
    row.num_cached = 0;
    row.taken_in_at = length;
    row.active_from = first_active(row);
  }
}

void ModelRunner::reserve_adjustments(int64_t num_entries) {
  const ScopedDevice on_device(context_.exec().device);
  adjusted_.reserve(context_.exec().device, limits_.max_batch, num_entries);
}

/// The table of `sample` for the rows, and greedy draws up to num_rows.
SamplingTable ModelRunner::add_sampling(StagedArrays& arrays, std::span<Sequence* const> rows,
                                        int64_t num_rows) {
  SamplingColumns& columns = sampling_columns_;
  for (auto* column : {&columns.temperature, &columns.top_p, &columns.min_p}) column->clear();
  columns.top_k.clear();
  for (auto* column : {&columns.seed, &columns.step}) column->clear();
  for (const Sequence* row : rows) {
    const SamplingOptions& options = row->sampling;
    columns.temperature.push_back(options.temperature);
    columns.top_k.push_back(options.top_k);
    columns.top_p.push_back(options.top_p);
    columns.min_p.push_back(options.min_p);
    columns.seed.push_back(options.seed);
    columns.step.push_back(std::ssize(row->completion.token_ids) + row->num_pending);
  }
  const auto size = static_cast<size_t>(num_rows);
  for (auto* column : {&columns.temperature, &columns.min_p}) column->resize(size, 0.0f);
  columns.top_p.resize(size, 1.0f);
  columns.top_k.resize(size, 0);
  for (auto* column : {&columns.seed, &columns.step}) column->resize(size, 0);
  return {.temperature = arrays.add(columns.temperature),
          .top_k = arrays.add(columns.top_k),
          .top_p = arrays.add(columns.top_p),
          .min_p = arrays.add(columns.min_p),
          .seed = arrays.add(columns.seed),
          .step = arrays.add(columns.step)};
}

void ModelRunner::sample(std::span<Sequence* const> rows, std::span<int32_t> token_ids,
                         std::span<float> logprobs) {
  const ScopedDevice on_device(context_.exec().device);
  const ExecContext& ctx = context_.exec();
  sampling_.clear();
  const SamplingTable table = add_sampling(sampling_, rows, std::ssize(rows));
  sampling_.copy(ctx);
  const TensorView of_rows = logits().narrow(0, 0, std::ssize(rows));
  const bool adjusts = adjusted_.adjust(ctx, rows, of_rows);
  const TensorView drawn = results_.token_ids(std::ssize(rows));
  const TensorView drawn_logprobs = results_.logprobs(std::ssize(rows));
  // Neighbours with as many logits are drawn at once.
  for (int64_t begin = 0, end = 0; begin < drawn.size(0); begin = end) {
    const int64_t width = num_logits(slot_of_logits(begin));
    while (end < drawn.size(0) && num_logits(slot_of_logits(end)) == width) ++end;
    const auto part = [&](const auto& column) { return column.narrow(0, begin, end - begin); };
    heddle::sample(ctx, part(drawn), part(drawn_logprobs), part(logits()).narrow(1, 0, width),
                   {.temperature = part(table.temperature),
                    .top_k = part(table.top_k),
                    .top_p = part(table.top_p),
                    .min_p = part(table.min_p),
                    .seed = part(table.seed),
                    .step = part(table.step)});
  }
  if (adjusts) {
    // Log-probabilities are the model's own.
    adjusted_.restore(ctx, of_rows);
    for (int64_t i = 0; i < drawn.size(0); ++i) {
      if (rows[static_cast<size_t>(i)]->adjustment == nullptr) continue;
      const TensorView own = logits().narrow(0, i, 1).narrow(1, 0, num_logits(slot_of_logits(i)));
      token_logprobs(ctx, drawn_logprobs.narrow(0, i, 1), {}, {}, own, drawn.narrow(0, i, 1));
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->top_logprobs > 0 && rows[i]->draws) {
      add_top_logprobs(*rows[i], static_cast<int64_t>(i));
    }
  }
  results_.send(ctx, std::ssize(rows));
  collect(token_ids, logprobs);
}

}  // namespace heddle
