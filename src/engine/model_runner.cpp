#include "engine/model_runner.h"

#include <algorithm>

#include "heddle/core/error.h"
#include "heddle/ops/sampling.h"

#include "engine/scheduler.h"

namespace heddle {

ModelRunner::ModelRunner(const files::GgufFile& file, const model::LlamaConfig& config,
                         const Limits& limits)
    : limits_(limits),
      threads_(limits.num_threads),
      model_(config, model::load_llama_weights(ExecContext{.threads = &threads_}, file, config)),
      adapters_(config.dims()),
      pages_(limits.max_batch * pages_for(limits.max_context, limits.page_size)),
      cache_({limits.max_batch * pages_for(limits.max_context, limits.page_size),
              static_cast<int>(config.num_layers), static_cast<int>(config.num_kv_heads),
              limits.page_size, static_cast<int>(config.head_dim)}),
      scratch_(config, limits.max_batch + limits.prefill_chunk, limits.max_batch),
      logits_(std::make_unique_for_overwrite<float[]>(
          static_cast<size_t>(limits.max_batch * config.vocab_size))) {}

ExecContext ModelRunner::context() { return {.threads = &threads_}; }

TensorView ModelRunner::logits() {
  return host_view(logits_.get(),
                   {static_cast<int64_t>(batch_.logit_tokens.size()), model_.config().vocab_size});
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
  const size_t needed =
      std::max(model_.lora_workspace_bytes({}, limits_.max_batch + limits_.prefill_chunk,
                                           adapters_.max_rank()),
               sample_workspace_bytes(limits_.max_batch, model_.config().vocab_size));
  if (needed > workspace_bytes_) {  // the first step, or the first with adapters of a higher rank
    workspace_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    workspace_bytes_ = needed;
  }
  Workspace workspace({workspace_.get(), workspace_bytes_});
  ExecContext ctx = context();
  ctx.workspace = &workspace;
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
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto view = [&](const auto& values) -> ConstTensorView {
    return host_view(values.data(), {num_rows});
  };
  Workspace workspace({workspace_.get(), workspace_bytes_});
  ExecContext ctx = context();
  ctx.workspace = &workspace;
  heddle::sample(ctx, host_view(token_ids.data(), {num_rows}),
                 host_view(logprobs.data(), {num_rows}), logits(),
                 {.temperature = view(temperature),
                  .top_k = view(top_k),
                  .top_p = view(top_p),
                  .min_p = view(min_p),
                  .seed = view(seed),
                  .step = view(step)});
}

}  // namespace heddle
