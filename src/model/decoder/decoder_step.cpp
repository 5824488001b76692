#include "model/decoder/decoder_step.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "heddle/ops/adapter_parts.h"
#include "heddle/ops/elementwise.h"
#include "heddle/ops/lora.h"

namespace heddle::model {
namespace {

constexpr size_t kMostProducts = 3;  // of a site: q, k and v

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

void Decoder::Step::run_site(int layer, LoraSite site, std::span<const SiteProduct> products,
                             const TensorView& x) const {
  if (ctx.device.type == DeviceType::kCpu) return run_site_on_cpu(layer, site, products, x);
  for (const StepPart& part : parts()) run_site_on_gpu(layer, site, products, x, part);
}

void Decoder::Step::run_site_on_cpu(int layer, LoraSite site, std::span<const SiteProduct> products,
                                    const TensorView& x) const {
  std::array<LinearOutput, kMostProducts> all_outputs;
  std::ranges::transform(products, all_outputs.begin(), [](const SiteProduct& p) {
    return LinearOutput{p.y, p.matrix, p.bias};
  });
  const auto outputs = std::span(all_outputs).first(products.size());
  const LoraTables::Site& tables = lora.site(layer, site);
  if (num_parts == 0 || !all_parts[0].any_adapter || tables.empty()) {
    return linear(ctx, outputs, x);
  }
  const LinearAdapters first{tables.front().a.view(), tables.front().b.view(), inputs.adapters};
  linear_with_adapters(ctx, outputs, x, first, lora_seconds);
  const AdapterTable* const affines = all_parts[0].any_affine ? lora.affines(layer, site) : nullptr;
  if (tables.size() == 1 && affines == nullptr) return;

  const auto begin = std::chrono::steady_clock::now();
  std::array<LoraSlice, kMostProducts> slices;
  std::ranges::transform(outputs, slices.begin(), [](const auto& o) { return LoraSlice{o.y}; });
  const auto used = std::span(slices).first(outputs.size());
  for (auto table = std::next(tables.begin()); table != tables.end(); ++table) {
    lora_apply(ctx, used, x, table->a.view(), table->b.view(), inputs.adapters);
  }
  if (affines != nullptr) apply_affines(ctx, used, affines->view(), inputs.adapters);
  *lora_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of the tokens of one part. There is one table for a site there, in the activations' dtype.
void Decoder::Step::run_site_on_gpu(int layer, LoraSite site, std::span<const SiteProduct> products,
                                    const TensorView& x, const StepPart& part) const {
  std::array<LinearSlice, kMostProducts> slices;
  std::ranges::transform(products, slices.begin(), [&](const SiteProduct& p) {
    return p.matrix.slice(p.y.narrow(0, part.first_token, part.num_tokens), p.bias);
  });
  const auto used = std::span(slices).first(products.size());
  const TensorView rows = x.narrow(0, part.first_token, part.num_tokens);
  const LoraTables::Site& tables = lora.site(layer, site);
  if (!part.any_adapter || tables.empty()) return linear_site(ctx, used, rows, part.path);
  const LinearAdapters adapters{tables.front().a.view(), tables.front().b.view(), part.adapters};
  const AdapterTable* const affines = part.any_affine ? lora.affines(layer, site) : nullptr;
  if (affines != nullptr) {
    return run_affine_site_on_gpu(affines->view(), used, rows, part, adapters);
  }
  linear_site(ctx, used, rows, part.path, &adapters);
}

/// The sums stay in f32 until the affines are applied, and are rounded once then: a row without has
/// the bits that linear_site gives it.
void Decoder::Step::run_affine_site_on_gpu(const LoraTable& affines, std::span<LinearSlice> slices,
                                           const TensorView& x, const StepPart& part,
                                           const LinearAdapters& adapters) const {
  std::array<TensorView, kMostProducts> outputs;
  std::array<LoraSlice, kMostProducts> sums;
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

}  // namespace heddle::model
