#include "model/decoder/decoder.h"

#include <algorithm>
#include <array>
#include <span>

#include "heddle/core/error.h"
#include "heddle/ops/activation.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/elementwise.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/linear_site.h"
#include "heddle/ops/lora.h"
#include "heddle/ops/norm.h"

#include "core/math.h"
#include "model/decoder/decoder_step.h"

namespace heddle::model {
namespace {

constexpr int64_t kPlanAlignment = 256;

/// [num_tokens, num_heads * head_dim] as [num_tokens, num_heads, head_dim].
TensorView as_heads(const TensorView& t, int64_t head_dim) {
  return {t.raw(), t.dtype(), t.device(), {t.size(0), t.size(1) / head_dim, head_dim}};
}

using VocabularyOf = const VocabularyTable* (AdapterVocabularies::*)(int32_t) const;

/// Whose embedding or head a row has: a table, null for the base model's, to which a list of
/// adapters adds.
struct Vocabulary {
  const VocabularyTable* table = nullptr;
  std::span<const AdapterUse> uses{};

  bool operator==(const Vocabulary& other) const {
    return table == other.table && uses.data() == other.uses.data();
  }
  /// The matrix that its rows are made of: the base model's, or the adapter's own.
  [[nodiscard]] const Matrix* matrix(const Matrix& base) const {
    return table != nullptr && table->has_weight() ? &table->weight() : &base;
  }
};

Vocabulary vocabulary_of(const StepBatch& batch, int64_t seq, const AdapterVocabularies& own,
                         VocabularyOf table_of) {
  const std::span<const AdapterUse> uses = batch.uses_of(seq);
  if (uses.empty()) return {.table = (own.*table_of)(batch.seq_slots[size_t(seq)])};
  const auto adds = [&](const AdapterUse& use) { return (own.*table_of)(use.slot) != nullptr; };
  return {.uses = std::ranges::any_of(uses, adds) ? uses : std::span<const AdapterUse>()};
}

/// Calls run(begin, end, value) for neighbours of [0, count) for which value_of gives the same.
template <class Of, class Run>
void for_runs(int64_t count, const Of& value_of, const Run& run) {
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    const auto value = value_of(begin);
    while (end < count && value_of(end) == value) ++end;
    run(begin, end, value);
  }
}

}  // namespace

DecoderScratch::DecoderScratch(Device device, const DecoderConfig& config, const StepLimits& limits,
                               DType activations)
    : limits_(limits), inputs_(device, StepInputs::bytes_for(limits)) {
  const ModelDims dims = config.dims();
  const auto make = [&](int64_t rows, int64_t width) {
    return DeviceTensor(device, activations, {rows, width});
  };
  const auto make_f32 = [&](int64_t rows, int64_t width) {
    return DeviceTensor(device, DType::kFloat32, {rows, width});
  };
  for (DeviceTensor* tensor : {&residual_, &delta_}) {
    *tensor = make_f32(limits.num_tokens, config.hidden_size);
  }
  normed_ = make(limits.num_tokens, config.hidden_size);
  q_ = make(limits.num_tokens, dims[Projection::kQ].out);
  attended_ = make(limits.num_tokens, dims[Projection::kQ].out);
  k_ = make(limits.num_tokens, dims[Projection::kK].out);
  v_ = make(limits.num_tokens, dims[Projection::kV].out);
  gate_ = make(limits.num_tokens, config.intermediate_size);
  up_ = make(limits.num_tokens, config.intermediate_size);
  const auto num_rotations = static_cast<int64_t>(config.rotations.size());
  cos_ = make_f32(num_rotations * limits.num_tokens, config.rotary_dim() / 2);
  sin_ = make_f32(num_rotations * limits.num_tokens, config.rotary_dim() / 2);
  last_ = make(limits.num_logit_rows, config.hidden_size);
}

void DecoderScratch::reserve_pairs(Device device, int64_t max_pairs) {
  StepLimits limits = limits_;
  limits.max_pairs = max_pairs;
  inputs_ = StagedArrays(device, StepInputs::bytes_for(limits));
  limits_ = limits;
}

bool DecoderScratch::reserve_plans(Device device, int max_rank) {
  if (device.type == DeviceType::kCpu) return false;
  const auto num_bytes = static_cast<int64_t>(lora_plan_bytes(limits_.num_tokens, max_rank));
  if (plans_.view() && num_bytes <= plans_.view().size(1)) return false;
  plans_ = DeviceTensor(device, DType::kUInt8, {2, round_up(num_bytes, kPlanAlignment)});
  return true;
}

/// Whether a rotation needs no table, since the call that stores the keys knows its angles: on a
/// GPU those without factors. The bits are the same.
bool Decoder::turns_by_positions(const Step& s, int rotation) const {
  if (s.ctx.device.type == DeviceType::kCpu || rotation == LayerTraits::kNoRotation) return false;
  const auto index = static_cast<size_t>(rotation);
  const Rotation& own = config_.rotations[index];
  const bool has_factors = !weights_.rotation_factors.empty() &&
                           static_cast<bool>(weights_.rotation_factors[index].factors.view());
  return !has_factors && !own.depends_on_length() && own.params.attention_factor == 1.0;
}

void DecoderScratch::reserve_affines(Device device, const DecoderConfig& config) {
  if (device.type == DeviceType::kCpu || site_sums_.view()) return;
  const ModelDims dims = config.dims();
  const auto out = [&](Projection p) { return dims[p].out; };
  // Sites o and down add to the residual, which is f32.
  const int64_t widest = std::max(out(Projection::kQ) + out(Projection::kK) + out(Projection::kV),
                                  out(Projection::kGate) + out(Projection::kUp));
  site_sums_ = DeviceTensor(device, DType::kFloat32, {limits_.num_tokens * widest});
}

/// cos and sin of each rotation for the step's tokens. Where angles depend on the length of the
/// sequence, a table for each sequence.
void Decoder::rotation_tables(const Step& s, const StepBatch& batch) const {
  for (int r = 0; r < static_cast<int>(config_.rotations.size()); ++r) {
    if (turns_by_positions(s, r)) continue;
    const auto index = static_cast<size_t>(r);
    const Rotation& rotation = config_.rotations[index];
    const RotationFactors* const factors =
        weights_.rotation_factors.empty() ? nullptr : &weights_.rotation_factors[index];
    const auto fill = [&](int64_t begin, int64_t end, int64_t length) {
      const int64_t count = end - begin;
      ConstTensorView divisors;
      if (factors != nullptr) {
        divisors = (rotation.is_long(length) ? factors->long_factors : factors->factors).view();
      }
      rope_table(s.ctx, s.table_of(s.all_cos, r, begin, count),
                 s.table_of(s.all_sin, r, begin, count), s.inputs.positions.narrow(0, begin, count),
                 rotation.params_for(length), divisors);
    };
    if (!rotation.depends_on_length()) {
      fill(0, batch.num_tokens(), 0);
      continue;
    }
    for (size_t i = 0; i + 1 < batch.q_indptr.size(); ++i) {
      fill(batch.q_indptr[i], batch.q_indptr[i + 1], batch.rotation_lengths[i]);
    }
  }
}

/// Turns q and k, and stores keys and values.
void Decoder::store_keys(const Step& s, int rotation, const PagedKv& cache) const {
  const TensorView q = as_heads(s.q, config_.head_dim), k = as_heads(s.k, config_.head_dim);
  const TensorView v = as_heads(s.v, config_.head_dim);
  const StepInputs& in = s.inputs;
  if (turns_by_positions(s, rotation)) {
    const RopeParams& params = config_.rotations[static_cast<size_t>(rotation)].params;
    return rope_kv_append(s.ctx, q, cache, in.pages, k, v, in.q_indptr, in.positions, params);
  }
  if (rotation != LayerTraits::kNoRotation) {
    const TensorView cos = s.table_of(s.all_cos, rotation, 0, s.num_tokens);
    const TensorView sin = s.table_of(s.all_sin, rotation, 0, s.num_tokens);
    rope(s.ctx, q, cos, sin);
    rope(s.ctx, k, cos, sin);
  }
  kv_init(s.ctx, cache, in.pages, k, v, in.q_indptr);
}

void Decoder::norm_q_and_k(const Step& s, const DecoderLayer& layer) const {
  if (config_.qk_norm == QkNorm::kNone) return;
  const bool each = config_.qk_norm == QkNorm::kEachHead;
  const auto rows = [&](const TensorView& t) { return each ? as_heads(t, config_.head_dim) : t; };
  rms_norm(s.ctx, rows(s.q), rows(s.q), layer.q_norm.view(), norm_options());
  rms_norm(s.ctx, rows(s.k), rows(s.k), layer.k_norm.view(), norm_options());
}

/// What stands between a block's last product and the residual.
void Decoder::finish_delta(const Step& s, const DeviceTensor& post_norm) const {
  if (config_.norm_after) rms_norm(s.ctx, s.delta, s.delta, post_norm.view(), norm_options());
  if (config_.residual_scale != 1.0f) scale(s.ctx, s.delta, config_.residual_scale);
}

/// The residual as the products of a block without a norm read it.
TensorView Decoder::plain_input(const Step& s) {
  if (s.normed.dtype() == s.residual.dtype()) return s.residual;
  round_to(s.ctx, s.normed, s.residual);
  return s.normed;
}

/// Adds the delta to the residual and gives what the next block reads: the residual normalised by
/// `weight`, or itself.
TensorView Decoder::next_input(const Step& s, const DeviceTensor& weight) const {
  if (!config_.norm_before) {
    add(s.ctx, s.residual, s.delta);
    return plain_input(s);
  }
  fused_add_rms_norm(s.ctx, s.normed, s.residual, s.delta, weight.view(), norm_options());
  return s.normed;
}

void Decoder::attention(const Step& s, int layer_idx, const TensorView& x) const {
  const DecoderLayer& layer = weights_.layers[static_cast<size_t>(layer_idx)];
  const LayerTraits traits = config_.layer(layer_idx);
  const auto product = [&](const TensorView& y, Projection p) {
    return SiteProduct{y, layer[p], layer.bias_of(p)};
  };
  const std::array<SiteProduct, 3> qkv = {
      product(s.q, Projection::kQ), product(s.k, Projection::kK), product(s.v, Projection::kV)};
  s.run_site(layer_idx, LoraSite::kQkv, qkv, x);
  norm_q_and_k(s, layer);
  const TensorView q = as_heads(s.q, config_.head_dim);
  const PagedKv cache = s.cache(layer_idx);
  const StepInputs& in = s.inputs;
  store_keys(s, traits.rotation, cache);
  const AttentionOptions options{.sm_scale = config_.attention_scale,
                                 .window_left = traits.window < 0 ? -1 : traits.window - 1,
                                 .logits_soft_cap = config_.attention_soft_cap};
  const TensorView attended = as_heads(s.attended, config_.head_dim);
  for (const StepPart& part : s.parts()) {
    const PageTable pages{
        .page_indptr = in.pages.page_indptr.narrow(0, part.first_seq, part.num_seqs + 1),
        .pages = in.pages.pages,
        .last_page_len = in.pages.last_page_len.narrow(0, part.first_seq, part.num_seqs)};
    if (part.path == LinearPath::kDecode) {
      const auto rows = [&](const TensorView& t) {
        return t.narrow(0, part.first_token, part.num_tokens);
      };
      batch_decode(s.ctx, rows(attended), {}, rows(q), cache, pages, options);
    } else {
      batch_prefill(s.ctx, attended, {}, q,
                    in.q_indptr.narrow(0, part.first_seq, part.num_seqs + 1), cache, pages,
                    options);
    }
  }
  const std::array<SiteProduct, 1> o = {product(s.delta, Projection::kO)};
  s.run_site(layer_idx, LoraSite::kO, o, s.attended);
  finish_delta(s, layer.attention_post_norm);
}

void Decoder::activate(const Step& s) const {
  switch (config_.gate_activation) {
    case GateActivation::kSilu: return silu_and_mul(s.ctx, s.gate, s.gate, s.up);
    case GateActivation::kGeluTanh:
      return gelu_and_mul(s.ctx, s.gate, s.gate, s.up, GeluForm::kTanh);
    case GateActivation::kGeluErf: return gelu_and_mul(s.ctx, s.gate, s.gate, s.up, GeluForm::kErf);
  }
}

void Decoder::mlp(const Step& s, int layer_idx, const TensorView& x) const {
  const DecoderLayer& layer = weights_.layers[static_cast<size_t>(layer_idx)];
  const auto product = [&](const TensorView& y, Projection p) {
    return SiteProduct{y, layer[p], layer.bias_of(p)};
  };
  const std::array<SiteProduct, 2> gate_up = {product(s.gate, Projection::kGate),
                                              product(s.up, Projection::kUp)};
  s.run_site(layer_idx, LoraSite::kGateUp, gate_up, x);
  activate(s);
  const std::array<SiteProduct, 1> down = {product(s.delta, Projection::kDown)};
  s.run_site(layer_idx, LoraSite::kDown, down, s.gate);
  finish_delta(s, layer.mlp_post_norm);
}

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
                      const std::function<PagedKv(int)>& cache, const LoadedAdapters& adapters,
                      TensorView logits, double* lora_seconds) const {
  forward(ctx, batch, stage(ctx, batch, scratch), scratch, cache, adapters, logits, lora_seconds);
}

void Decoder::forward(const ExecContext& ctx, const StepBatch& batch, const StepInputs& inputs,
                      DecoderScratch& scratch, const std::function<PagedKv(int)>& cache,
                      const LoadedAdapters& adapters, TensorView logits,
                      double* lora_seconds) const {
  const int64_t num_logit_rows = std::ssize(batch.logit_tokens);
  const Step step = make_step(ctx, batch, inputs, scratch, cache, adapters.layers, lora_seconds);

  embed(step, batch, adapters.vocabularies);
  if (config_.embedding_scale != 1.0f) scale(ctx, step.residual, config_.embedding_scale);
  rotation_tables(step, batch);
  for (int i = 0; i < static_cast<int>(config_.num_layers); ++i) {
    const DecoderLayer& layer = weights_.layers[static_cast<size_t>(i)];
    attention(step, i, i == 0 ? first_input(step, layer) : next_input(step, layer.attention_norm));
    mlp(step, i, next_input(step, layer.mlp_norm));
  }
  if (num_logit_rows == 0) return;
  fused_add_rms_norm(ctx, step.normed, step.residual, step.delta, weights_.output_norm.view(),
                     norm_options());
  const TensorView last = scratch.last_.rows(num_logit_rows);
  heddle::embedding(ctx, last, step.inputs.logit_tokens, step.normed);  // a plain choice of rows
  head(step, batch, adapters.vocabularies, last, logits);
}

/// Rows of one matrix together, whichever adapters then change them.
void Decoder::embed(const Step& s, const StepBatch& batch, const AdapterVocabularies& own) const {
  if (!own.any())
    return model::embedding(s.ctx, s.residual, s.inputs.token_ids, weights_.embedding);
  const auto of = [&](int64_t seq) {
    return vocabulary_of(batch, seq, own, &AdapterVocabularies::embedding);
  };
  const auto matrix_of = [&](int64_t seq) { return of(seq).matrix(weights_.embedding); };
  const auto tokens_of = [&](const auto& t, int64_t begin, int64_t end) {
    const int64_t first = batch.q_indptr[size_t(begin)];
    return t.narrow(0, first, batch.q_indptr[size_t(end)] - first);
  };
  for_runs(batch.num_seqs(), matrix_of, [&](int64_t begin, int64_t end, const Matrix* matrix) {
    model::embedding(s.ctx, tokens_of(s.residual, begin, end),
                     tokens_of(s.inputs.token_ids, begin, end), *matrix);
  });
  for_runs(batch.num_seqs(), of, [&](int64_t begin, int64_t end, const Vocabulary& vocabulary) {
    const TensorView rows = tokens_of(s.residual, begin, end);
    const ConstTensorView ids = tokens_of(s.inputs.token_ids, begin, end);
    if (vocabulary.table != nullptr) vocabulary.table->change_rows(s.ctx, rows, ids);
    for (const AdapterUse& use : vocabulary.uses) {
      const VocabularyTable* const table = own.embedding(use.slot);
      if (table != nullptr) table->add_to_rows(s.ctx, rows, ids, use.scale);
    }
  });
}

/// The same of logits. On a GPU all rows take the path of decode: few want logits.
void Decoder::head(const Step& s, const StepBatch& batch, const AdapterVocabularies& own,
                   const TensorView& last, const TensorView& logits) const {
  const auto of = [&](int64_t row) -> Vocabulary {
    if (!own.any()) return {};
    return vocabulary_of(batch, batch.logit_seqs[size_t(row)], own, &AdapterVocabularies::head);
  };
  const auto matrix_of = [&](int64_t row) { return of(row).matrix(weights_.output); };
  const auto rows_of = [&](int64_t begin, int64_t end, const Matrix& matrix) {
    return logits.narrow(0, begin, end - begin).narrow(1, 0, matrix.out_features);
  };
  for_runs(last.size(0), matrix_of, [&](int64_t begin, int64_t end, const Matrix* matrix) {
    product(s.ctx, rows_of(begin, end, *matrix), last.narrow(0, begin, end - begin), *matrix);
  });
  for_runs(last.size(0), of, [&](int64_t begin, int64_t end, const Vocabulary& vocabulary) {
    if (vocabulary == Vocabulary{}) return;
    const TensorView rows = rows_of(begin, end, *vocabulary.matrix(weights_.output));
    const TensorView x = last.narrow(0, begin, end - begin);
    const ConstTensorView slots = s.inputs.logit_slots.narrow(0, begin, end - begin);
    if (vocabulary.table != nullptr) vocabulary.table->change_logits(s.ctx, rows, x, slots);
    for (const AdapterUse& use : vocabulary.uses) {
      const VocabularyTable* const table = own.head(use.slot);
      if (table != nullptr) table->add_to_logits(s.ctx, rows, x, use.scale, slots);
    }
  });
  for_runs(last.size(0), matrix_of, [&](int64_t begin, int64_t end, const Matrix* matrix) {
    finish_logits(s, rows_of(begin, end, *matrix));
  });
}

void Decoder::finish_logits(const Step& s, const TensorView& logits) const {
  if (config_.logits_scale != 1.0f) scale(s.ctx, logits, config_.logits_scale);
  if (config_.logits_soft_cap != 0.0f) soft_cap(s.ctx, logits, config_.logits_soft_cap);
}

/// What the first layer reads: the embedding normalised, or itself.
TensorView Decoder::first_input(const Step& s, const DecoderLayer& layer) const {
  if (!config_.norm_before) return plain_input(s);
  rms_norm(s.ctx, s.normed, s.residual, layer.attention_norm.view(), norm_options());
  return s.normed;
}

RmsNormOptions Decoder::norm_options() const {
  return {.epsilon = config_.rms_epsilon, .weight_offset = config_.norm_adds_one ? 1 : 0};
}

Decoder::Step Decoder::make_step(const ExecContext& ctx, const StepBatch& batch,
                                 const StepInputs& inputs, DecoderScratch& scratch,
                                 const std::function<PagedKv(int)>& cache, const LoraTables& lora,
                                 double* lora_seconds) const {
  const int64_t num_tokens = batch.num_tokens();
  Step step{.ctx = ctx,
            .cache = cache,
            .lora = lora,
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
  step.num_parts = make_parts(batch, step.inputs, lora, on_gpu, step.all_parts);
  if (on_gpu) make_plans(step, scratch);
  return step;
}

/// Groups the rows of each part by adapter, once for all sites.
void Decoder::make_plans(Step& step, const DecoderScratch& scratch) {
  for (int i = 0; i < step.num_parts; ++i) {
    StepPart& part = step.all_parts[static_cast<size_t>(i)];
    if (!part.any_adapter || !part.adapters.slot_ids) continue;
    const ConstTensorView plans = scratch.plans_.view();
    const TensorView plan(scratch.plans_.view().raw() + i * plans.stride(0), DType::kUInt8,
                          step.ctx.device, {plans.size(1)});
    lora_plan(step.ctx, plan, part.adapters, part.num_tokens, step.lora.num_slots(),
              step.lora.max_rank());
    part.adapters.plan = plan;
  }
}

size_t Decoder::workspace_bytes(Device device, const StepLimits& limits, int max_rank) const {
  const DecoderConfig& c = config();
  const ModelDims dims = c.dims();
  const auto out = [&](Projection p) { return dims[p].out; };
  if (device.type == DeviceType::kCpu) {
    const int64_t widest_in =
        std::max({c.hidden_size, c.num_q_heads * c.head_dim, c.intermediate_size});
    return std::max(
        lora_apply_workspace_bytes(device, limits.num_tokens, widest_in, 3, max_rank),
        lora_pairs_workspace_bytes(device, limits.num_tokens, widest_in, 0, 3, max_rank));
  }
  size_t bytes =
      std::max(batch_decode_workspace_bytes(device, limits.num_seqs, c.num_q_heads, c.head_dim),
               linear_site_workspace_bytes(device, limits.num_logit_rows, c.hidden_size,
                                           c.vocab_size, 1, 0));
  const auto site = [&](int64_t in, int64_t out_features, int num_slices) {
    bytes = std::max(bytes, linear_site_workspace_bytes(device, limits.num_tokens, in, out_features,
                                                        num_slices, max_rank, limits.max_pairs));
  };
  site(c.hidden_size, out(Projection::kQ) + out(Projection::kK) + out(Projection::kV), 3);
  site(out(Projection::kQ), out(Projection::kO), 1);
  site(c.hidden_size, out(Projection::kGate) + out(Projection::kUp), 2);
  site(c.intermediate_size, out(Projection::kDown), 1);
  return bytes;
}

}  // namespace heddle::model
