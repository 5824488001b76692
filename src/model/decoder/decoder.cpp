#include "model/decoder/decoder.h"

#include <algorithm>
#include <variant>

#include "heddle/core/error.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/elementwise.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/linear_site.h"
#include "heddle/ops/lora.h"

#include "model/decoder/mixers.h"
#include "model/decoder/vocabulary.h"

namespace heddle::model {
namespace {

/// Groups the rows of each part by adapter, once for all sites.
void make_plans(DecoderStep& step, const TensorView& plans) {
  for (int i = 0; i < step.num_parts; ++i) {
    StepPart& part = step.all_parts[static_cast<size_t>(i)];
    if (!part.any_adapter || !part.adapters.slot_ids) continue;
    const TensorView plan(plans.raw() + i * plans.stride(0), DType::kUInt8, step.ctx.device,
                          {plans.size(1)});
    lora_plan(step.ctx, plan, part.adapters, part.num_tokens, step.lora.num_slots(),
              step.lora.max_rank());
    part.adapters.plan = plan;
  }
}

}  // namespace

StepInputs Decoder::stage(const ExecContext& ctx, const StepBatch& batch, DecoderScratch& scratch,
                          AddMore add_more) const {
  const StepLimits& limits = scratch.limits_;
  const int64_t num_tokens = batch.num_tokens(), num_logit_rows = std::ssize(batch.logit_tokens);
  HEDDLE_CHECK(num_tokens <= limits.num_tokens, "a step of ", num_tokens, " tokens, at most ",
               limits.num_tokens, " fit");
  HEDDLE_CHECK(num_logit_rows <= limits.num_logit_rows, "a step of ", num_logit_rows,
               " rows of logits, at most ", limits.num_logit_rows, " fit");
  return StepInputs::copy(ctx, batch, scratch.inputs_, limits, add_more);
}

void Decoder::forward(const ExecContext& ctx, const StepBatch& batch, DecoderScratch& scratch,
                      std::span<const LayerCache> caches, const LoadedAdapters& adapters,
                      TensorView logits, double* lora_seconds) const {
  const StepInputs inputs = stage(ctx, batch, scratch);
  const Pass pass{batch, inputs, scratch, caches, adapters, logits, lora_seconds};
  embed_tokens(ctx, pass);
  run_layers(ctx, pass);
  compute_logits(ctx, pass);
}

void Decoder::embed_tokens(const ExecContext& ctx, const Pass& pass) const {
  const DecoderStep step = make_step(ctx, pass);
  embed(step, pass.batch, pass.adapters.vocabularies);
  if (config_.embedding_scale != 1.0f) scale(ctx, step.residual, config_.embedding_scale);
}

/// With the normalised rows that logits are made of.
void Decoder::run_layers(const ExecContext& ctx, const Pass& pass) const {
  DecoderStep step = make_step(ctx, pass);
  if (ctx.device.type != DeviceType::kCpu) make_plans(step, pass.scratch.plans_.view());
  rotation_tables(step, pass.batch);
  for (int i = 0; i < static_cast<int>(config_.num_layers); ++i) {
    const DecoderLayer& layer = step.layer(i);
    const TensorView x =
        i == 0 ? step.first_input(layer.mixer.norm) : step.next_input(layer.mixer.norm);
    if (!pass.scratch.tapped_layers_.empty()) tap(step, pass.scratch, i);
    std::visit([&](const auto& sites) { mix(step, i, sites, x); }, block_.mixer);
    const TensorView y = step.next_input(layer.mlp.norm);
    std::visit([&](const auto& sites) { mlp(step, i, sites, y); }, block_.mlp);
  }
  const auto num_logit_rows = std::ssize(pass.batch.logit_tokens);
  if (num_logit_rows == 0 && !pass.batch.wants_hidden) return;
  fused_add_rms_norm(ctx, step.normed, step.residual, step.delta, weights_.output_norm.view(),
                     step.norm_options());
  if (num_logit_rows == 0) return;
  const TensorView last = pass.scratch.last_.rows(num_logit_rows);
  heddle::embedding(ctx, last, step.inputs.logit_tokens, step.normed);  // a plain choice of rows
}

/// Keeps what enters the layer, where DecoderScratch::tap asks for it.
void Decoder::tap(const DecoderStep& step, const DecoderScratch& scratch, int layer) {
  const auto found = std::ranges::find(scratch.tapped_layers_, layer);
  if (found == scratch.tapped_layers_.end()) return;
  const int64_t width = step.residual.size(1);
  const int64_t column = (found - scratch.tapped_layers_.begin()) * width;
  const TensorView to = scratch.tapped(step.num_tokens).narrow(1, column, width);
  if (to.dtype() != DType::kFloat32) return round_to(step.ctx, to, step.residual);
  for (int64_t t = 0; t < step.num_tokens; ++t) {  // f32 is of the CPU
    const float* const from = step.residual.data<float>() + t * step.residual.stride(0);
    std::copy_n(from, width, to.data<float>() + t * to.stride(0));
  }
}

void Decoder::compute_logits(const ExecContext& ctx, const Pass& pass) const {
  const auto num_logit_rows = std::ssize(pass.batch.logit_tokens);
  if (num_logit_rows == 0) return;
  head(make_step(ctx, pass), pass.batch, pass.adapters.vocabularies,
       pass.scratch.last_.rows(num_logit_rows), pass.logits);
}

DecoderStep Decoder::make_step(const ExecContext& ctx, const Pass& pass) const {
  const auto& [batch, inputs, scratch, caches, adapters, logits, lora_seconds] = pass;
  const int64_t num_tokens = batch.num_tokens();
  DecoderStep step{.ctx = ctx,
                   .config = config_,
                   .block = block_,
                   .weights = weights_,
                   .caches = caches,
                   .lora = adapters.layers,
                   .lora_seconds = lora_seconds,
                   .inputs = inputs,
                   .all_parts = {},
                   .num_parts = 0,
                   .residual = scratch.residual_.rows(num_tokens),
                   .normed = scratch.normed_.rows(num_tokens),
                   .delta = scratch.delta_.rows(num_tokens),
                   .q = scratch.q_.rows(num_tokens),
                   .k = scratch.k_.rows(num_tokens),
                   .v = scratch.v_.rows(num_tokens),
                   .attended = scratch.attended_.rows(num_tokens),
                   .gate = scratch.gate_.rows(num_tokens),
                   .up = scratch.up_.rows(num_tokens),
                   .site_sums = scratch.site_sums_.view(),
                   .all_cos = scratch.cos_.view(),
                   .all_sin = scratch.sin_.view(),
                   .num_tokens = num_tokens,
                   .max_tokens = scratch.limits_.num_tokens};
  const bool on_gpu = ctx.device.type != DeviceType::kCpu;
  step.num_parts = make_parts(batch, step.inputs, adapters.layers, on_gpu, step.all_parts);
  return step;
}

size_t Decoder::workspace_bytes(Device device, const StepLimits& limits, int max_rank) const {
  const DecoderConfig& c = config();
  if (device.type == DeviceType::kCpu) {
    int64_t widest_in = 0;
    int max_slices = 0;
    for (const BlockSite& site : block_.sites) {
      widest_in = std::max(widest_in, block_.dims_of(site).in);
      max_slices = std::max(max_slices, site.count);
    }
    const size_t lora_bytes = std::max(
        lora_apply_workspace_bytes(device, limits.num_tokens, widest_in, max_slices, max_rank),
        lora_pairs_workspace_bytes(device, limits.num_tokens, widest_in, 0, max_slices, max_rank));
    const LinearActivations activations = weights_.product_activations;
    return std::max(lora_bytes + linear_workspace_bytes(limits.num_tokens, widest_in, activations),
                    linear_workspace_bytes(limits.num_logit_rows, c.hidden_size, activations));
  }
  size_t bytes =
      std::max(batch_decode_workspace_bytes(device, limits.num_seqs, c.num_q_heads, c.head_dim),
               linear_site_workspace_bytes(device, limits.num_logit_rows, c.hidden_size,
                                           c.vocab_size, 1, 0));
  for (const BlockSite& site : block_.sites) {
    const auto [in, out] = block_.dims_of(site);
    bytes = std::max(bytes, linear_site_workspace_bytes(device, limits.num_tokens, in, out,
                                                        site.count, max_rank, limits.max_pairs));
  }
  return bytes;
}

}  // namespace heddle::model
