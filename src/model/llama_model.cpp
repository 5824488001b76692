#include "model/llama_model.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <initializer_list>

#include "heddle/core/error.h"
#include "heddle/ops/activation.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/norm.h"

namespace heddle::model {
namespace {

/// [num_tokens, num_heads * head_dim] as [num_tokens, num_heads, head_dim].
TensorView as_heads(const TensorView& t, int64_t head_dim) {
  return {t.raw(), t.dtype(), t.device(), {t.size(0), t.size(1) / head_dim, head_dim}};
}

}  // namespace

LlamaScratch::LlamaScratch(Device device, const LlamaConfig& config, const StepLimits& limits)
    : limits_(limits), inputs_(device, StepInputs::bytes_for(limits)) {
  const ModelDims dims = config.dims();
  const auto make = [&](int64_t rows, int64_t width) {
    return DeviceTensor(device, kDType, {rows, width});
  };
  for (DeviceTensor* tensor : {&residual_, &normed_, &delta_}) {
    *tensor = make(limits.num_tokens, config.hidden_size);
  }
  q_ = make(limits.num_tokens, dims[Projection::kQ].out);
  attended_ = make(limits.num_tokens, dims[Projection::kQ].out);
  k_ = make(limits.num_tokens, dims[Projection::kK].out);
  v_ = make(limits.num_tokens, dims[Projection::kV].out);
  gate_ = make(limits.num_tokens, config.intermediate_size);
  up_ = make(limits.num_tokens, config.intermediate_size);
  cos_ = make(limits.num_tokens, config.rope.rotary_dim / 2);
  sin_ = make(limits.num_tokens, config.rope.rotary_dim / 2);
  last_ = make(limits.num_logit_rows, config.hidden_size);
}

/// What the layers of one forward pass share.
struct LlamaModel::Step {
  const ExecContext& ctx;
  const std::function<PagedKv(int)>& cache;
  const LoraTables& lora;
  double* lora_seconds;
  bool any_adapter;
  StepInputs inputs;
  TensorView residual, normed, delta, q, k, v, attended, gate, up, cos, sin;

  /// Adds the adapters' deltas to the outputs of a site.
  void apply_lora(int layer, LoraSite site, std::initializer_list<TensorView> outputs,
                  const TensorView& x) const {
    const LoraTables::Site& tables = lora.site(layer, site);
    if (!any_adapter || tables.empty()) return;
    const auto begin = std::chrono::steady_clock::now();
    std::array<LoraSlice, 3> slices;
    size_t num_slices = 0;
    for (const TensorView& y : outputs) slices[num_slices++].y = y;
    for (const SiteTable& table : tables) {
      lora_apply(ctx, std::span(slices.data(), num_slices), x, table.a.view(), table.b.view(),
                 LoraBatch::from_ids(inputs.slot_ids));
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
  const StepInputs& in = s.inputs;
  kv_init(s.ctx, cache, in.pages, k, as_heads(s.v, config_.head_dim), in.q_indptr);
  batch_prefill(s.ctx, as_heads(s.attended, config_.head_dim), {}, q, in.q_indptr, cache, in.pages);
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
  const StepLimits& limits = scratch.limits_;
  const int64_t num_tokens = batch.num_tokens();
  const auto num_logit_rows = static_cast<int64_t>(batch.logit_tokens.size());
  HEDDLE_CHECK(num_tokens <= limits.num_tokens, "a step of ", num_tokens, " tokens, at most ",
               limits.num_tokens, " fit");
  HEDDLE_CHECK(num_logit_rows <= limits.num_logit_rows, "a step of ", num_logit_rows,
               " rows of logits, at most ", limits.num_logit_rows, " fit");
  const Step step{
      .ctx = ctx,
      .cache = cache,
      .lora = lora,
      .lora_seconds = lora_seconds,
      .any_adapter = std::ranges::any_of(batch.slot_ids, [](int32_t slot) { return slot >= 0; }),
      .inputs = StepInputs::copy(ctx, batch, scratch.inputs_),
      .residual = scratch.residual_.rows(num_tokens),
      .normed = scratch.normed_.rows(num_tokens),
      .delta = scratch.delta_.rows(num_tokens),
      .q = scratch.q_.rows(num_tokens),
      .k = scratch.k_.rows(num_tokens),
      .v = scratch.v_.rows(num_tokens),
      .attended = scratch.attended_.rows(num_tokens),
      .gate = scratch.gate_.rows(num_tokens),
      .up = scratch.up_.rows(num_tokens),
      .cos = scratch.cos_.rows(num_tokens),
      .sin = scratch.sin_.rows(num_tokens)};
  const RmsNormOptions norm{.epsilon = config_.rms_epsilon};

  embedding(ctx, step.residual, step.inputs.token_ids, weights_.embedding);
  rope_table(ctx, step.cos, step.sin, step.inputs.positions, config_.rope,
             weights_.rope_factors.view());
  for (int i = 0; i < static_cast<int>(config_.num_layers); ++i) {
    const LlamaLayer& layer = weights_.layers[static_cast<size_t>(i)];
    const ConstTensorView attention_norm = layer.attention_norm.view();
    if (i == 0) {
      rms_norm(ctx, step.normed, step.residual, attention_norm, norm);
    } else {
      fused_add_rms_norm(ctx, step.normed, step.residual, step.delta, attention_norm, norm);
    }
    attention(step, i);
    fused_add_rms_norm(ctx, step.normed, step.residual, step.delta, layer.mlp_norm.view(), norm);
    mlp(step, i);
  }
  if (num_logit_rows == 0) return;
  fused_add_rms_norm(ctx, step.normed, step.residual, step.delta, weights_.output_norm.view(),
                     norm);
  const TensorView last = scratch.last_.rows(num_logit_rows);
  embedding(ctx, last, step.inputs.logit_tokens, step.normed);  // a plain choice of rows
  linear(ctx, logits, last, weights_.output);
}

size_t LlamaModel::lora_workspace_bytes(Device device, int64_t max_tokens, int max_rank) const {
  const LlamaConfig& c = config();
  const int64_t widest_in =
      std::max({c.hidden_size, c.num_q_heads * c.head_dim, c.intermediate_size});
  return lora_apply_workspace_bytes(device, max_tokens, widest_in, 3, max_rank);
}

}  // namespace heddle::model
