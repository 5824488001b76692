#include "engine/runner/model_runner.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/sampling.h"

#include "core/environment.h"
#include "engine/options/available_memory.h"
#include "engine/options/room_for.h"
#include "engine/rows/scheduler.h"
#include "engine/runner/batch_builder.h"

namespace heddle {

namespace {

using Limits = ModelRunner::Limits;

constexpr const char* kStepOptions =
    "a smaller prefill_chunk (--prefill-chunk), max_batch (--max-batch) or kv_memory (--kv-memory)";

/// Pages of a cache in which no request ever waits for pages.
int64_t max_pages(const Limits& limits) {
  return std::min<int64_t>(limits.max_batch * pages_for(limits.max_context, limits.page_size),
                           std::numeric_limits<std::underlying_type_t<PageId>>::max());
}

/// That a step draws: a token of each request, and one after each draft.
int64_t max_rows(const Limits& limits) { return limits.max_batch + limits.max_drafts; }

/// Tokens of the largest step: all requests decode, or some prefill a chunk. A chunk may be given
/// larger than all prompts together.
int64_t max_tokens(const Limits& limits) {
  const int64_t num_tokens =
      max_rows(limits) + std::min(limits.prefill_chunk, limits.max_batch * limits.max_context);
  HEDDLE_CHECK(num_tokens <= std::numeric_limits<int32_t>::max(), "prefill_chunk is ",
               limits.prefill_chunk, ", expected at most ",
               std::numeric_limits<int32_t>::max() - limits.max_batch,
               " with max_batch = ", limits.max_batch);
  return num_tokens;
}

/// Pages that the requests of a step may have together: those that several share are listed for
/// each.
int64_t max_listed(const Limits& limits, int64_t num_pages) {
  constexpr int64_t kOwners = 8;
  return std::max(num_pages, std::min(max_pages(limits), kOwners * num_pages));
}

/// A draft that is a sequence of its own lists the pages of its row again.
model::StepLimits step_limits(const Limits& limits, const PagePool& pages) {
  const int64_t of_drafts = limits.max_drafts * pages_for(limits.max_context, limits.page_size);
  return {.num_tokens = max_tokens(limits),
          .num_seqs = max_rows(limits),
          // with one for what pads a batch
          .num_pages = pages.max_listed() + max_rows(limits) + of_drafts,
          .num_logit_rows = max_rows(limits) + kMaxScored,
          .more_bytes =
              Sampler::staged_bytes(max_rows(limits)) + ValueRows::staged_bytes(limits.max_batch)};
}

/// On a GPU keys and values are read in the type of the products, or in fp8.
void check_kv_type(Device device, DType kv_type, DType activations) {
  const bool is_read = kv_type == activations || kv_type == DType::kFloat8E4M3;
  HEDDLE_CHECK(device.type == DeviceType::kCpu || is_read, "kv_type is ", kv_type_name(kv_type),
               ", but this model on ", device, " needs ", activations, " or ",
               kv_type_name(DType::kFloat8E4M3), "; device cpu (--device cpu) takes any type");
}

KvCache::Shape kv_shape(Device device, const model::Decoder& model, const Limits& limits) {
  const model::DecoderConfig& config = model.config();
  const DType activations = model.weights().activations;
  const DType dtype = limits.kv_dtype.value_or(activations);
  check_kv_type(device, dtype, activations);
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
      adapters_(context_, model_),
      kv_shape_(kv_shape(device, model_, limits)),
      // The weights are loaded by now, so their memory no longer counts as available.
      num_pages_(choose_num_pages(limits.kv_memory, available_memory(device), kv_shape_,
                                  max_pages(limits))),
      pages_(num_pages_, max_listed(limits, num_pages_)),
      cache_(room_for("the KV cache", "a smaller kv_memory (--kv-memory)",
                      [&] {
                        const int64_t padding = device.type == DeviceType::kCpu ? 0 : 1;
                        return KvCache(device, kv_shape_, pages_.num_pages() + padding);
                      })),
      scratch_(room_for("what the largest step computes", kStepOptions,
                        [&] {
                          return model::DecoderScratch(device, files.config(),
                                                       step_limits(limits, pages_),
                                                       model_.weights().activations);
                        })),
      logits_(room_for("the logits of the largest step", "a smaller max_batch (--max-batch)",
                       [&] {
                         return DeviceTensor(
                             device, DType::kFloat32,
                             {max_rows(limits) + kMaxScored, files.config().vocab_size});
                       })),
      sampler_(device, max_rows(limits)),
      values_(device, limits.max_batch, files.config().hidden_size),
      clock_(device) {
  for (int layer = 0; layer < static_cast<int>(model_.config().num_layers); ++layer) {
    windows_.insert(model_.config().layer(layer).window_left());
  }
  reserve_workspace(0);
  batch_.reserve(largest_step());
}

void ModelRunner::reserve_workspace(int max_rank) {
  const size_t num_bytes =
      std::max(model_.workspace_bytes(context_.exec().device, largest_step(), max_rank),
               sample_workspace_bytes(max_rows(limits_), logits_.view().size(1)));
  room_for("the workspace of the largest step", kStepOptions,
           [&] { context_.reserve_workspace(num_bytes); });
}

/// The limits of steps, with as many adapters of a request as there is room for.
model::StepLimits ModelRunner::largest_step() const {
  model::StepLimits limits = step_limits(limits_, pages_);
  limits.max_pairs = max_pairs_;
  return limits;
}

void ModelRunner::add_adapter(AdapterData& adapter) {
  const ScopedDevice on_device(context_.exec().device);
  try {
    reserve_for(adapter);
    adapters_.add(adapter);
  } catch (...) {
    adapter.moving.reset();
    adapter.forget_digest_if_stored();
    throw;
  }
}

/// Makes room for steps with the adapter.
void ModelRunner::reserve_for(const AdapterData& adapter) {
  const Device device = context_.exec().device;
  const auto& [layers, vocabulary, heads, arrived] = *adapter.moving;
  const model::VocabularyTable* const head = vocabulary.head.get();
  if (head != nullptr && head->num_tokens() > logits_.view().size(1)) {
    logits_ =
        DeviceTensor(device, DType::kFloat32, {max_rows(limits_) + kMaxScored, head->num_tokens()});
    graphs_.clear();
  }
  const int max_rank = std::max(adapters_.tables().layers.max_rank(), adapter.max_rank);
  reserve_workspace(max_rank);
  if (head != nullptr) {
    context_.reserve_workspace(head->workspace_bytes(device, max_rows(limits_) + kMaxScored));
  }
  if (scratch_.reserve_plans(device, max_rank)) graphs_.clear();
  if (layers.has_affines()) scratch_.reserve_affines(device, model_.block());
}

void ModelRunner::reserve_for(const RowAdapters& adapters) {
  if (std::ssize(adapters.uses) <= max_pairs_) return;
  const ScopedDevice on_device(context_.exec().device);
  model::StepLimits limits = largest_step();
  limits.max_pairs = std::ssize(adapters.uses);
  batch_.reserve(limits);
  context_.reserve_workspace(
      model_.workspace_bytes(context_.exec().device, limits, adapters_.tables().layers.max_rank()));
  scratch_.reserve_pairs(context_.exec().device, limits.max_pairs);
  graphs_.clear();
  max_pairs_ = limits.max_pairs;
}

void ModelRunner::reserve_adjustments(int64_t num_entries) {
  const ScopedDevice on_device(context_.exec().device);
  sampler_.reserve_adjustments(context_.exec().device, num_entries);
}

void ModelRunner::reserve_masks(int64_t num_rows) {
  const ScopedDevice on_device(context_.exec().device);
  sampler_.reserve_masks(context_.exec().device, num_rows + limits_.max_drafts,
                         logits_.view().size(1));
}

void ModelRunner::reserve_workspace_bytes(size_t num_bytes) {
  const ScopedDevice on_device(context_.exec().device);
  context_.reserve_workspace(num_bytes);
}

bool ModelRunner::copy_page(PageId from, PageId to) const noexcept {
  if (from == to) return true;
  try {
    const ScopedDevice on_device(context_.exec().device);
    begin_copy_within(context_.exec(), bytes_of(to).data(), bytes_of(from));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void ModelRunner::tap(std::span<const int64_t> layers) {
  const ScopedDevice on_device(context_.exec().device);
  room_for("the hidden states that drafts are made of", kStepOptions,
           [&] { scratch_.tap(context_.exec().device, layers); });
}

void ModelRunner::give_place(RowValues& row) {
  const ScopedDevice on_device(context_.exec().device);
  values_.give_place(row);
}

int64_t ModelRunner::num_logits(int32_t slot) const {
  const auto* const own = adapters_.tables().vocabularies.head(slot);
  return own == nullptr ? model_.config().vocab_size : own->num_tokens();
}

int64_t ModelRunner::width_of_logits(int64_t row) const {
  return num_logits(batch_.seq_slots[size_t(batch_.logit_seqs[size_t(row)])]);
}

TensorView ModelRunner::logits() const { return logits_.rows(std::ssize(batch_.logit_tokens)); }

std::vector<float> ModelRunner::copy_logits() const {
  const ScopedDevice on_device(context_.exec().device);
  std::vector<float> values;
  for (int64_t row = 0; row < logits().size(0); ++row) {
    const int64_t width = width_of_logits(row);
    values.resize(values.size() + static_cast<size_t>(width));
    copy_to_host(context_.exec(), std::span(values).last(static_cast<size_t>(width)),
                 logits().narrow(0, row, 1).narrow(1, 0, width));
  }
  return values;
}

bool ModelRunner::overlaps() const {
  return (is_on_gpu() || limits_.steps_as_on_gpu) && model_.config().recompute_above() == 0;
}

/// Whether an adapter of a request has an embedding or a head of its own.
bool ModelRunner::has_vocabularies(const StepSchedule& step) const {
  const model::AdapterVocabularies& own = adapters_.tables().vocabularies;
  const auto has = [&](int32_t slot) {
    return own.embedding(slot) != nullptr || own.head(slot) != nullptr;
  };
  return own.any() && std::ranges::any_of(step.rows, [&](const RowStep& row) {
           const RowAdapters& adapters = row.sequence->adapters;
           if (adapters.uses.empty()) return has(adapters.slot);
           return std::ranges::any_of(adapters.uses,
                                      [&](const auto& use) { return has(use.slot); });
         });
}

/// Whether tokens of a row should read its keys together. That takes fewer blocks, and is slower
/// where they all find the keys in the L2 cache anyway. On an H200, heads of 128 and 8 of the
/// cache, 8 tokens of one row with 2,048 keys take 29 us together and 18 alone, 2 tokens of 8 such
/// rows 27 and 39.
bool ModelRunner::bundles_pay(const StepSchedule& step) const {
  if (limits_.steps_as_on_gpu) return true;
  constexpr int64_t kFewBytes = int64_t{96} << 20;  // of one layer
  const int64_t key_bytes = page_bytes() / limits_.page_size / model_.config().num_layers;
  int64_t num_bytes = 0;
  for (const RowStep& row : step.rows) {
    if (row.num_drafts > 0) num_bytes += (row.first + row.count) * row.count * key_bytes;
  }
  return num_bytes > kFewBytes;
}

/// Those that every kind of layer cuts alike: each has a window of its own.
int64_t ModelRunner::bundle_of(int64_t kv_len, int64_t num_queries) const {
  const model::DecoderConfig& config = model_.config();
  int64_t count = num_queries;
  for (const int64_t window : windows_) {
    count = decode_bundle(kv_dtype(), config.num_q_heads, config.num_kv_heads, config.head_dim,
                          window, kv_len, count);
  }
  return count;
}

StepHandle ModelRunner::launch(const StepSchedule& step) {
  const ExecContext& ctx = context_.exec();
  const ScopedDevice on_device(ctx.device);
  fill_batch(batch_, step, limits_.page_size, is_on_gpu() || limits_.steps_as_on_gpu,
             [this, pays = bundles_pay(step)](int64_t kv_len, int64_t num_queries) {
               return pays ? bundle_of(kv_len, num_queries) : 1;
             });
  const bool decodes_alone = batch_.num_decode == batch_.num_seqs();
  const bool all_draw = step.num_logits == batch_.num_seqs();  // none decodes again
  const bool is_recorded =
      is_on_gpu() && overlaps() && decodes_alone && all_draw && !launches_block();
  if (is_recorded) pad_batch(batch_, max_rows(limits_), pages_.num_pages());
  const int64_t num_drawn = std::ssize(batch_.logit_tokens) - step.num_scored;
  const auto add_more = [&](StagedArrays& arrays) {
    sampler_.stage(arrays, step, num_drawn);
    values_.stage(arrays, step);
  };
  const model::StepInputs inputs = model_.stage(ctx, batch_, scratch_, add_more);
  const model::Decoder::Pass pass{.batch = batch_,
                                  .inputs = inputs,
                                  .scratch = scratch_,
                                  .caches = cache_.layers(),
                                  .adapters = adapters_.tables(),
                                  .logits = logits(),
                                  .lora_seconds = &lora_seconds_};
  if (overlaps()) clock_.begin(ctx);
  ++num_launched_;
  if (is_recorded) {
    compute_recorded(pass, has_vocabularies(step));
  } else {
    compute(pass);
  }
  if (batch_.wants_hidden) {
    values_.pool(ctx, step, scratch_.hidden(batch_.num_tokens()));
  }
  for (const RowStep& row : step.rows) {
    RowCache& cache = row.sequence->cache;
    cache.num_cached += row.count;
    cache.has_run = true;
    if (row.num_logits == 0) continue;
    cache.num_pending += static_cast<int32_t>(row.num_logits);
    cache.drawn_at = static_cast<int32_t>(row.logits_begin + row.num_logits - 1);
  }
  return {&step, num_launched_};
}

void ModelRunner::embed(const model::Decoder::Pass& pass) {
  const ExecContext& ctx = context_.exec();
  if (!batch_.sources.empty()) {
    take_drawn_tokens(ctx, pass.inputs.token_ids, sampler_.drawn(), pass.inputs.sources);
  }
  model_.embed_tokens(ctx, pass);
}

/// The forward pass of a step, from arrays that were staged.
void ModelRunner::compute(const model::Decoder::Pass& pass) {
  embed(pass);
  model_.run_layers(context_.exec(), pass);
  model_.compute_logits(context_.exec(), pass);
}

/// Embeddings and heads of adapters stay outside of the graph: their calls differ with the rows.
void ModelRunner::compute_recorded(const model::Decoder::Pass& pass, bool has_vocabularies) {
  const ExecContext& ctx = context_.exec();
  const model::LoraTables& tables = adapters_.tables().layers;
  const auto any = [](const auto& slots, const auto& is_so) {
    return std::ranges::any_of(slots, is_so);
  };
  const auto has_affines = [&](int32_t slot) { return tables.has_affines(slot); };
  const StepGraphs::Key key{
      .num_seqs = batch_.num_seqs(),
      .max_pairs = batch_.max_pairs,
      .num_bundles = std::max<int64_t>(std::ssize(batch_.bundle_indptr) - 1, 0),
      .max_bundle = batch_.max_bundle,
      .any_adapter = any(batch_.slot_ids, [](int32_t slot) { return slot >= 0; }),
      .any_affine = any(batch_.slot_ids, has_affines) || any(batch_.pair_slots, has_affines),
      .has_vocabularies = has_vocabularies};
  if (!has_vocabularies) {
    return graphs_.run(ctx, key, tables.version(), [&] { compute(pass); });
  }
  embed(pass);
  graphs_.run(ctx, key, tables.version(), [&] { model_.run_layers(ctx, pass); });
  model_.compute_logits(ctx, pass);
}

void ModelRunner::draw(const StepHandle& handle) {
  const ExecContext& ctx = context_.exec();
  const ScopedDevice on_device(ctx.device);
  const auto widths = [this](int64_t row) { return width_of_logits(row); };
  values_.score(ctx, *handle.schedule, {logits(), widths});
  sampler_.draw(ctx, *handle.schedule, {logits(), widths});
  if (overlaps()) clock_.end(ctx);
  sampler_.send(ctx);
  values_.send(ctx, *handle.schedule);
}

StepTokens ModelRunner::collect(const StepHandle& handle) {
  const ScopedDevice on_device(context_.exec().device);
  const StepSchedule& step = *handle.schedule;
  const auto begin = std::chrono::steady_clock::now();
  const StepTokens tokens = sampler_.receive(step);
  values_.receive(step);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  wait_seconds_ += waited.count();
  clock_.count();
  last_collected_ = handle.number;
  context_.check();
  for (const RowStep& row : step.rows) {
    if (row.is_alive()) row.sequence->cache.num_pending -= static_cast<int32_t>(row.num_logits);
  }
  return tokens;
}

}  // namespace heddle
