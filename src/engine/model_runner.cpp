#include "engine/model_runner.h"

#include <algorithm>

#include "heddle/core/error.h"
#include "heddle/ops/sampling.h"

#include "engine/scheduler.h"

namespace heddle {

namespace {

int64_t pages_of(const ModelRunner::Limits& limits) {
  return limits.max_batch * pages_for(limits.max_context, limits.page_size);
}

model::StepLimits step_limits(const ModelRunner::Limits& limits) {
  return {.num_tokens = limits.max_batch + limits.prefill_chunk,
          .num_seqs = limits.max_batch,
          .num_pages = pages_of(limits),
          .num_logit_rows = limits.max_batch};
}

/// Of a SamplingTable: four arrays of 32 bits an entry, two of 64.
size_t sampling_bytes(int64_t num_rows) {
  return 4 * StagedArrays::bytes_for<float>(num_rows) +
         2 * StagedArrays::bytes_for<int64_t>(num_rows);
}

}  // namespace

ModelRunner::ModelRunner(Device device, const files::GgufFile& file,
                         const model::LlamaConfig& config, const Limits& limits)
    : limits_(limits),
      context_(device, limits.num_threads),
      model_(config, model::load_llama_weights(context_.exec(), file, config)),
      adapters_(config.dims(), model::LoraForm::of(device.type, model::LlamaScratch::kDType)),
      pages_(pages_of(limits)),
      cache_(device, {pages_of(limits), static_cast<int>(config.num_layers),
                      static_cast<int>(config.num_kv_heads), limits.page_size,
                      static_cast<int>(config.head_dim)}),
      scratch_(device, config, step_limits(limits)),
      logits_(device, DType::kFloat32, {limits.max_batch, config.vocab_size}),
      sampling_(device, sampling_bytes(limits.max_batch)),
      token_ids_(device, DType::kInt32, {limits.max_batch}),
      logprobs_(device, DType::kFloat32, {limits.max_batch}) {}

TensorView ModelRunner::logits() const {
  return logits_.rows(static_cast<int64_t>(batch_.logit_tokens.size()));
}

std::vector<float> ModelRunner::copy_logits() const {
  std::vector<float> values(static_cast<size_t>(logits().num_elements()));
  copy_to_host(context_.exec(), std::span(values), logits());
  return values;
}

void ModelRunner::add_to_batch(Sequence& row, int64_t num_tokens) {
  const int64_t end = row.num_cached + num_tokens;
  while (static_cast<int64_t>(row.pages.size()) * limits_.page_size < end) {
    const auto page = pages_.acquire();
    HEDDLE_CHECK(page, "out of KV pages: the row was not admitted for ", end, " tokens");
    row.pages.push_back(*page);
  }
  for (int64_t position = row.num_cached; position < end; ++position) {
    batch_.token_ids.push_back(row.tokens[static_cast<size_t>(position)]);
    batch_.positions.push_back(static_cast<int32_t>(position));
    batch_.slot_ids.push_back(row.slot);
  }
  batch_.q_indptr.push_back(static_cast<int32_t>(batch_.num_tokens()));
  for (const PageId page : row.pages) batch_.pages.push_back(static_cast<int32_t>(page));
  batch_.page_indptr.push_back(static_cast<int32_t>(batch_.pages.size()));
  batch_.last_page_len.push_back(static_cast<int32_t>((end - 1) % limits_.page_size + 1));
  row.num_cached = end;
  if (end == static_cast<int64_t>(row.tokens.size())) {
    batch_.logit_tokens.push_back(static_cast<int32_t>(batch_.num_tokens() - 1));
  }
}

void ModelRunner::run(std::span<Sequence* const> rows, std::span<const int64_t> num_tokens) {
  batch_.clear();
  batch_.q_indptr.push_back(0);
  batch_.page_indptr.push_back(0);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (num_tokens[i] > 0) add_to_batch(*rows[i], num_tokens[i]);
  }
  const ExecContext& ctx = context_.exec();
  // More in the first step, and in the first with adapters of a higher rank.
  context_.reserve_workspace(
      std::max(model_.lora_workspace_bytes(ctx.device, step_limits(limits_).num_tokens,
                                           adapters_.max_rank()),
               sample_workspace_bytes(limits_.max_batch, model_.config().vocab_size)));
  model_.forward(
      ctx, batch_, scratch_, [this](int layer) { return cache_.layer(layer); }, adapters_, logits(),
      &lora_seconds_);
}

void ModelRunner::sample(std::span<Sequence* const> rows, std::span<int32_t> token_ids,
                         std::span<float> logprobs) {
  std::vector<float> temperature, top_p, min_p;
  std::vector<int32_t> top_k;
  std::vector<int64_t> seed, step;
  for (const Sequence* row : rows) {
    const SamplingOptions& options = row->sampling;
    temperature.push_back(options.temperature);
    top_k.push_back(options.top_k);
    top_p.push_back(options.top_p);
    min_p.push_back(options.min_p);
    seed.push_back(options.seed);
    step.push_back(static_cast<int64_t>(row->completion.token_ids.size()));
  }
  const ExecContext& ctx = context_.exec();
  sampling_.clear();
  const SamplingTable table{.temperature = sampling_.add(temperature),
                            .top_k = sampling_.add(top_k),
                            .top_p = sampling_.add(top_p),
                            .min_p = sampling_.add(min_p),
                            .seed = sampling_.add(seed),
                            .step = sampling_.add(step)};
  sampling_.copy(ctx);
  const TensorView drawn = token_ids_.rows(std::ssize(rows));
  const TensorView drawn_logprobs = logprobs_.rows(std::ssize(rows));
  heddle::sample(ctx, drawn, drawn_logprobs, logits(), table);
  copy_to_host(ctx, token_ids, drawn);
  copy_to_host(ctx, logprobs, drawn_logprobs);
}

}  // namespace heddle
