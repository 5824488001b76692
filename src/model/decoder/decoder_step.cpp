#include "model/decoder/decoder_step.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "heddle/ops/adapter_parts.h"
#include "heddle/ops/elementwise.h"
#include "heddle/ops/lora.h"

namespace heddle::model {
namespace {

constexpr size_t kMaxSlices = 3;  // of a site: q, k and v

/// The batch of tokens [first, first + count).
LoraBatch narrow(const LoraBatch& batch, int64_t first, int64_t count) {
  LoraBatch part = batch;
  if (batch.slot_ids) part.slot_ids = batch.slot_ids.narrow(0, first, count);
  if (batch.pair_starts) part.pair_starts = batch.pair_starts.narrow(0, first, count + 1);
  return part;
}

/// Elements [first, first + count).
std::span<const int32_t> part_of(const std::vector<int32_t>& values, int64_t first, int64_t count) {
  return std::span(values).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

/// The adapters of tokens [first, first + count).
std::span<const int32_t> slots_of(const StepBatch& batch, int64_t first, int64_t count) {
  if (batch.pair_starts.empty()) return part_of(batch.slot_ids, first, count);
  const int32_t begin = batch.pair_starts[static_cast<size_t>(first)];
  return part_of(batch.pair_slots, begin,
                 batch.pair_starts[static_cast<size_t>(first + count)] - begin);
}

}  // namespace

int make_parts(const StepBatch& batch, const StepInputs& inputs, const LoraTables& lora,
               bool has_paths, std::array<StepPart, 2>& parts) {
  int num_parts = 0;
  const auto add = [&](LinearPath path, int64_t first_seq, int64_t end_seq) {
    const int64_t first = batch.q_indptr[static_cast<size_t>(first_seq)];
    const int64_t count = batch.q_indptr[static_cast<size_t>(end_seq)] - first;
    if (count == 0) return;
    const auto has_affines = [&](int32_t slot) { return lora.has_affines(slot); };
    parts[static_cast<size_t>(num_parts++)] = {
        .path = path,
        .first_token = first,
        .num_tokens = count,
        .first_seq = first_seq,
        .num_seqs = end_seq - first_seq,
        .adapters = narrow(inputs.adapters, first, count),
        .any_adapter = std::ranges::any_of(part_of(batch.slot_ids, first, count),
                                           [](int32_t slot) { return slot >= 0; }),
        .any_affine = std::ranges::any_of(slots_of(batch, first, count), has_affines)};
  };
  const int64_t num_decode = has_paths ? batch.num_decode : 0;
  add(LinearPath::kDecode, 0, num_decode);
  add(LinearPath::kPrompt, num_decode, batch.num_seqs());
  return num_parts;
}

void DecoderStep::run_site(int layer_idx, int site, std::initializer_list<TensorView> y,
                           const TensorView& x) const {
  if (ctx.device.type == DeviceType::kCpu) return run_site_on_cpu(layer_idx, site, y, x);
  for (const StepPart& part : parts()) run_site_on_gpu(layer_idx, site, y, x, part);
}

std::span<const SliceWeights> DecoderStep::slices_of(int layer_idx, int site) const {
  const BlockSite& shape = block.site(site);
  return std::span(layer(layer_idx).slices)
      .subspan(static_cast<size_t>(shape.first), static_cast<size_t>(shape.count));
}

void DecoderStep::run_site_on_cpu(int layer_idx, int site, Outputs y, const TensorView& x) const {
  std::array<LinearOutput, kMaxSlices> all_outputs;
  std::ranges::transform(y, slices_of(layer_idx, site), all_outputs.begin(),
                         [](const TensorView& out, const SliceWeights& slice) {
                           return LinearOutput{out, slice.matrix.packed(), slice.bias.view()};
                         });
  const auto outputs = std::span(all_outputs).first(y.size());
  const LoraTables::Site& tables = lora.site(layer_idx, site);
  if (num_parts == 0 || !all_parts[0].any_adapter || tables.empty()) {
    return linear(ctx, outputs, x, weights.product_activations);
  }
  const LinearAdapters first{tables.front().a.view(), tables.front().b.view(), inputs.adapters};
  linear_with_adapters(ctx, outputs, x, first, lora_seconds, weights.product_activations);
  const AdapterTable* const affines =
      all_parts[0].any_affine ? lora.affines(layer_idx, site) : nullptr;
  if (tables.size() == 1 && affines == nullptr) return;

  const auto begin = std::chrono::steady_clock::now();
  std::array<LoraSlice, kMaxSlices> slices;
  std::ranges::transform(outputs, slices.begin(), [](const auto& o) { return LoraSlice{o.y}; });
  const auto used = std::span(slices).first(outputs.size());
  for (auto table = std::next(tables.begin()); table != tables.end(); ++table) {
    lora_apply(ctx, used, x, table->a.view(), table->b.view(), inputs.adapters);
  }
  if (affines != nullptr) apply_affines(ctx, used, affines->view(), inputs.adapters);
  *lora_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// For the tokens of one part. On a GPU a site has one table, in the activations' dtype.
void DecoderStep::run_site_on_gpu(int layer_idx, int site, Outputs y, const TensorView& x,
                                  const StepPart& part) const {
  const auto rows_of = [&](const TensorView& t) {
    return t.narrow(0, part.first_token, part.num_tokens);
  };
  std::array<LinearSlice, kMaxSlices> slices;
  std::ranges::transform(y, slices_of(layer_idx, site), slices.begin(),
                         [&](const TensorView& out, const SliceWeights& slice) {
                           return slice.matrix.slice(rows_of(out), slice.bias.view());
                         });
  const auto used = std::span(slices).first(y.size());
  const TensorView rows = rows_of(x);
  const LoraTables::Site& tables = lora.site(layer_idx, site);
  if (!part.any_adapter || tables.empty()) return linear_site(ctx, used, rows, part.path);
  const LinearAdapters adapters{tables.front().a.view(), tables.front().b.view(), part.adapters};
  const AdapterTable* const affines = part.any_affine ? lora.affines(layer_idx, site) : nullptr;
  if (affines != nullptr) {
    return run_affine_site_on_gpu(affines->view(), used, rows, part, adapters);
  }
  linear_site(ctx, used, rows, part.path, &adapters);
}

/// The sums stay in f32 until the affines are applied, and are rounded once then: a row without has
/// the bits that linear_site gives it.
void DecoderStep::run_affine_site_on_gpu(const LoraTable& affines, std::span<LinearSlice> slices,
                                         const TensorView& x, const StepPart& part,
                                         const LinearAdapters& adapters) const {
  std::array<TensorView, kMaxSlices> outputs;
  std::array<LoraSlice, kMaxSlices> sums;
  std::byte* next = site_sums.raw();
  for (size_t i = 0; i < slices.size(); ++i) {
    TensorView& y = slices[i].y;
    outputs[i] = y;
    if (y.dtype() != DType::kFloat32) {
      y = TensorView(next, DType::kFloat32, ctx.device, {y.size(0), y.size(1)});
      next += y.num_elements() * int64_t{sizeof(float)};
    }
    sums[i] = LoraSlice{y};
  }
  linear_site(ctx, slices, x, part.path, &adapters);
  apply_affines(ctx, std::span(sums).first(slices.size()), affines, part.adapters);
  for (size_t i = 0; i < slices.size(); ++i) {
    if (outputs[i].dtype() != DType::kFloat32) round_to(ctx, outputs[i], sums[i].y);
  }
}

void DecoderStep::finish_delta(const DeviceTensor& post_norm) const {
  if (config.norm_after) rms_norm(ctx, delta, delta, post_norm.view(), norm_options());
  if (config.residual_scale != 1.0f) scale(ctx, delta, config.residual_scale);
}

/// The residual as products read it, without a norm.
TensorView DecoderStep::plain_input() const {
  if (normed.dtype() == residual.dtype()) return residual;
  round_to(ctx, normed, residual);
  return normed;
}

TensorView DecoderStep::first_input(const DeviceTensor& weight) const {
  if (!config.norm_before) return plain_input();
  rms_norm(ctx, normed, residual, weight.view(), norm_options());
  return normed;
}

TensorView DecoderStep::next_input(const DeviceTensor& weight) const {
  if (!config.norm_before) {
    add(ctx, residual, delta);
    return plain_input();
  }
  fused_add_rms_norm(ctx, normed, residual, delta, weight.view(), norm_options());
  return normed;
}

RmsNormOptions DecoderStep::norm_options() const {
  return {.epsilon = config.rms_epsilon, .weight_offset = config.norm_adds_one ? 1 : 0};
}

}  // namespace heddle::model
