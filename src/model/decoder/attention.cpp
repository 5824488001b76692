#include "heddle/ops/attention.h"

#include "model/decoder/mixers.h"

namespace heddle::model {
namespace {

/// [num_tokens, num_heads * head_dim] as [num_tokens, num_heads, head_dim].
TensorView as_heads(const TensorView& t, int64_t head_dim) {
  return {t.raw(), t.dtype(), t.device(), {t.size(0), t.size(1) / head_dim, head_dim}};
}

/// Whether a rotation needs no table, since the call that stores the keys computes its angles: on a
/// GPU those without factors. The bits are the same.
bool turns_by_positions(const DecoderStep& s, int rotation) {
  if (s.ctx.device.type == DeviceType::kCpu || rotation == LayerTraits::kNoRotation) return false;
  const auto index = static_cast<size_t>(rotation);
  const Rotation& own = s.config.rotations[index];
  const bool has_factors = !s.weights.rotation_factors.empty() &&
                           static_cast<bool>(s.weights.rotation_factors[index].factors.view());
  return !has_factors && !own.depends_on_length() && own.params.attention_factor == 1.0;
}

/// Turns q and k, and stores keys and values.
void store_keys(const DecoderStep& s, int rotation, const PagedKv& cache) {
  const TensorView q = as_heads(s.q, s.config.head_dim), k = as_heads(s.k, s.config.head_dim);
  const TensorView v = as_heads(s.v, s.config.head_dim);
  const StepInputs& in = s.inputs;
  if (turns_by_positions(s, rotation)) {
    const RopeParams& params = s.config.rotations[static_cast<size_t>(rotation)].params;
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

void norm_q_and_k(const DecoderStep& s, const AttentionWeights& weights) {
  if (s.config.qk_norm == QkNorm::kNone) return;
  const bool each = s.config.qk_norm == QkNorm::kEachHead;
  const auto rows = [&](const TensorView& t) { return each ? as_heads(t, s.config.head_dim) : t; };
  rms_norm(s.ctx, rows(s.q), rows(s.q), weights.q_norm.view(), s.norm_options());
  rms_norm(s.ctx, rows(s.k), rows(s.k), weights.k_norm.view(), s.norm_options());
}

}  // namespace

void rotation_tables(const DecoderStep& s, const StepBatch& batch) {
  for (int r = 0; r < static_cast<int>(s.config.rotations.size()); ++r) {
    if (turns_by_positions(s, r)) continue;
    const auto index = static_cast<size_t>(r);
    const Rotation& rotation = s.config.rotations[index];
    const RotationFactors* const factors =
        s.weights.rotation_factors.empty() ? nullptr : &s.weights.rotation_factors[index];
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

void mix(const DecoderStep& s, int layer, const AttentionSites& sites, const TensorView& x) {
  const AttentionWeights& weights = s.layer(layer).mixer;
  const LayerTraits traits = s.config.layer(layer);
  s.run_site(layer, sites.qkv, {s.q, s.k, s.v}, x);
  norm_q_and_k(s, weights);
  const TensorView q = as_heads(s.q, s.config.head_dim);
  const auto& cache = std::get<PagedKv>(s.caches[static_cast<size_t>(layer)]);
  const StepInputs& in = s.inputs;
  store_keys(s, traits.rotation, cache);
  const AttentionOptions options{.sm_scale = s.config.attention_scale,
                                 .window_left = traits.window_left(),
                                 .logits_soft_cap = s.config.attention_soft_cap};
  const TensorView attended = as_heads(s.attended, s.config.head_dim);
  for (const StepPart& part : s.parts()) {
    const PageTable pages{
        .page_indptr = in.pages.page_indptr.narrow(0, part.first_seq, part.num_seqs + 1),
        .pages = in.pages.pages,
        .last_page_len = in.pages.last_page_len.narrow(0, part.first_seq, part.num_seqs)};
    if (part.path == LinearPath::kDecode) {
      const auto rows = [&](const TensorView& t) {
        return t.narrow(0, part.first_token, part.num_tokens);
      };
      AttentionOptions of_decode = options;
      of_decode.bundle_indptr = in.bundle_indptr;
      of_decode.max_bundle = in.max_bundle;
      batch_decode(s.ctx, rows(attended), {}, rows(q), cache, pages, of_decode);
    } else {
      batch_prefill(s.ctx, attended, {}, q,
                    in.q_indptr.narrow(0, part.first_seq, part.num_seqs + 1), cache, pages,
                    options);
    }
  }
  s.run_site(layer, sites.o, {s.delta}, s.attended);
  s.finish_delta(weights.post_norm);
}

}  // namespace heddle::model
