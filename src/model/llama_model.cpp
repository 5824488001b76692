#include "model/llama_model.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <initializer_list>

#include "heddle/core/error.h"
#include "heddle/ops/activation.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/norm.h"

namespace heddle::model {
namespace {

ConstTensorView ids(const std::vector<int32_t>& values) {
  return host_view(values.data(), {static_cast<int64_t>(values.size())});
}

ConstTensorView weight_view(const std::vector<float>& values) {
  return host_view(values.data(), {static_cast<int64_t>(values.size())});
}

/// [num_tokens, num_heads * head_dim] as [num_tokens, num_heads, head_dim].
TensorView as_heads(const TensorView& t, int64_t head_dim) {
  return host_view(t.data<float>(), {t.size(0), t.size(1) / head_dim, head_dim});
}

}  // namespace

void StepBatch::clear() {
  for (std::vector<int32_t>* values : {&token_ids, &positions, &slot_ids, &q_indptr, &page_indptr,
                                       &pages, &last_page_len, &logit_tokens}) {
    values->clear();
  }
}

LlamaScratch::LlamaScratch(const LlamaConfig& config, int64_t max_tokens, int64_t max_logit_rows)
    : max_tokens_(max_tokens), max_logit_rows_(max_logit_rows) {
  const ModelDims dims = config.dims();
  const auto reserve = [](std::vector<float>& values, int64_t rows, int64_t width) {
    values.resize(static_cast<size_t>(rows * width));
  };
  for (std::vector<float>* values : {&residual_, &normed_, &delta_}) {
    reserve(*values, max_tokens, config.hidden_size);
  }
  reserve(q_, max_tokens, dims[Projection::kQ].out);
  reserve(attended_, max_tokens, dims[Projection::kQ].out);
  reserve(k_, max_tokens, dims[Projection::kK].out);
  reserve(v_, max_tokens, dims[Projection::kV].out);
  reserve(gate_, max_tokens, config.intermediate_size);
  reserve(up_, max_tokens, config.intermediate_size);
  reserve(cos_, max_tokens, config.rope.rotary_dim / 2);
  reserve(sin_, max_tokens, config.rope.rotary_dim / 2);
  reserve(last_, max_logit_rows, config.hidden_size);
}

/// What the layers of one forward pass share.
struct LlamaModel::Step {
  const ExecContext& ctx;
  const std::function<PagedKv(int)>& cache;
  const LoraTables& lora;
  double* lora_seconds;
  bool any_adapter;
  ConstTensorView slot_ids, q_indptr;
  PageTable table;
  TensorView residual, normed, delta, q, k, v, attended, gate, up, cos, sin;

  /// Adds the adapters' deltas to the outputs of a site.
  void apply_lora(int layer, LoraSite site, std::initializer_list<TensorView> outputs,
                  const TensorView& x) const {
    const std::span<const SiteTable> tables = lora.site(layer, site);
    if (!any_adapter || tables.empty()) return;
    const auto begin = std::chrono::steady_clock::now();
    std::array<LoraSlice, 3> slices;
    size_t num_slices = 0;
    for (const TensorView& y : outputs) slices[num_slices++].y = y;
    for (const SiteTable& tables_of_dtype : tables) {
      lora_apply(ctx, std::span(slices.data(), num_slices), x, tables_of_dtype.a, tables_of_dtype.b,
                 LoraBatch::from_ids(slot_ids));
    }
    *lora_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

void LlamaModel::attention(const Step& s, int layer_idx) const {
  const LlamaLayer& layer = weights_.layers[static_cast<size_t>(layer_idx)];
  const std::array<LinearOutput, 3> qkv = {
      {{s.q, layer[Projection::kQ]}, {s.k, layer[Projection::kK]}, {s.v, layer[Projection::kV]}}};
  linear(s.ctx, qkv, s.normed);
  s.apply_lora(layer_idx, LoraSite::kQkv, {s.q, s.k, s.v}, s.normed);
  const TensorView q = as_heads(s.q, config_.head_dim), k = as_heads(s.k, config_.head_dim);
  rope(s.ctx, q, s.cos, s.sin);
  rope(s.ctx, k, s.cos, s.sin);
  const PagedKv cache = s.cache(layer_idx);
  kv_init(s.ctx, cache, s.table, k, as_heads(s.v, config_.head_dim), s.q_indptr);
  batch_prefill(s.ctx, as_heads(s.attended, config_.head_dim), {}, q, s.q_indptr, cache, s.table);
  linear(s.ctx, s.delta, s.attended, layer[Projection::kO]);
  s.apply_lora(layer_idx, LoraSite::kO, {s.delta}, s.attended);
}

void LlamaModel::mlp(const Step& s, int layer_idx) const {
  const LlamaLayer& layer = weights_.layers[static_cast<size_t>(layer_idx)];
  const std::array<LinearOutput, 2> gate_up = {
      {{s.gate, layer[Projection::kGate]}, {s.up, layer[Projection::kUp]}}};
  linear(s.ctx, gate_up, s.normed);
  s.apply_lora(layer_idx, LoraSite::kGateUp, {s.gate, s.up}, s.normed);
  silu_and_mul(s.ctx, s.gate, s.gate, s.up);
  linear(s.ctx, s.delta, s.gate, layer[Projection::kDown]);
  s.apply_lora(layer_idx, LoraSite::kDown, {s.delta}, s.gate);
}

void LlamaModel::forward(const ExecContext& ctx, const StepBatch& batch, LlamaScratch& scratch,
                         const std::function<PagedKv(int)>& cache, const LoraTables& lora,
                         TensorView logits, double* lora_seconds) const {
  const int64_t num_tokens = batch.num_tokens();
  const auto num_logit_rows = static_cast<int64_t>(batch.logit_tokens.size());
  HEDDLE_CHECK(num_tokens <= scratch.max_tokens_, "a step of ", num_tokens, " tokens, at most ",
               scratch.max_tokens_, " fit");
  HEDDLE_CHECK(num_logit_rows <= scratch.max_logit_rows_, "a step of ", num_logit_rows,
               " rows of logits, at most ", scratch.max_logit_rows_, " fit");
  const auto rows = [&](std::vector<float>& values, int64_t width) {
    return host_view(values.data(), {num_tokens, width});
  };
  const ModelDims dims = config_.dims();
  const int64_t hidden = config_.hidden_size, half_rotary = config_.rope.rotary_dim / 2;
  const Step step{
      .ctx = ctx,
      .cache = cache,
      .lora = lora,
      .lora_seconds = lora_seconds,
      .any_adapter = std::ranges::any_of(batch.slot_ids, [](int32_t slot) { return slot >= 0; }),
      .slot_ids = ids(batch.slot_ids),
      .q_indptr = ids(batch.q_indptr),
      .table = {ids(batch.page_indptr), ids(batch.pages), ids(batch.last_page_len)},
      .residual = rows(scratch.residual_, hidden),
      .normed = rows(scratch.normed_, hidden),
      .delta = rows(scratch.delta_, hidden),
      .q = rows(scratch.q_, dims[Projection::kQ].out),
      .k = rows(scratch.k_, dims[Projection::kK].out),
      .v = rows(scratch.v_, dims[Projection::kV].out),
      .attended = rows(scratch.attended_, dims[Projection::kQ].out),
      .gate = rows(scratch.gate_, config_.intermediate_size),
      .up = rows(scratch.up_, config_.intermediate_size),
      .cos = rows(scratch.cos_, half_rotary),
      .sin = rows(scratch.sin_, half_rotary)};
  const RmsNormOptions norm{.epsilon = config_.rms_epsilon};

  embedding(ctx, step.residual, ids(batch.token_ids), weights_.embedding);
  const ConstTensorView rope_factors =
      weights_.rope_factors.empty() ? ConstTensorView() : weight_view(weights_.rope_factors);
  rope_table(ctx, step.cos, step.sin, ids(batch.positions), config_.rope, rope_factors);
  for (int i = 0; i < static_cast<int>(config_.num_layers); ++i) {
    const LlamaLayer& layer = weights_.layers[static_cast<size_t>(i)];
    if (i == 0) {
      rms_norm(ctx, step.normed, step.residual, weight_view(layer.attention_norm), norm);
    } else {
      fused_add_rms_norm(ctx, step.normed, step.residual, step.delta,
                         weight_view(layer.attention_norm), norm);
    }
    attention(step, i);
    fused_add_rms_norm(ctx, step.normed, step.residual, step.delta, weight_view(layer.mlp_norm),
                       norm);
    mlp(step, i);
  }
  if (num_logit_rows == 0) return;
  fused_add_rms_norm(ctx, step.normed, step.residual, step.delta, weight_view(weights_.output_norm),
                     norm);
  for (int64_t i = 0; i < num_logit_rows; ++i) {
    const float* row =
        step.normed.data<float>() + batch.logit_tokens[static_cast<size_t>(i)] * hidden;
    std::copy_n(row, hidden, scratch.last_.data() + i * hidden);
  }
  linear(ctx, logits, host_view(scratch.last_.data(), {num_logit_rows, hidden}), weights_.output);
}

size_t LlamaModel::lora_workspace_bytes(Device device, int64_t max_tokens, int max_rank) const {
  const LlamaConfig& c = config();
  const int64_t widest_in =
      std::max({c.hidden_size, c.num_q_heads * c.head_dim, c.intermediate_size});
  return lora_apply_workspace_bytes(device, max_tokens, widest_in, 3, max_rank);
}

}  // namespace heddle::model
