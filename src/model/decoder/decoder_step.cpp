#include "model/decoder/decoder_step.h"

#include <algorithm>
#include <chrono>
#include <iterator>

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

}  // namespace

int make_parts(const StepBatch& batch, const StepInputs& inputs, bool has_paths,
               std::array<StepPart, 2>& parts) {
  int num_parts = 0;
  const auto add = [&](LinearPath path, int64_t first_seq, int64_t end_seq) {
    const int64_t first = batch.q_indptr[static_cast<size_t>(first_seq)];
    const int64_t count = batch.q_indptr[static_cast<size_t>(end_seq)] - first;
    if (count == 0) return;
    const auto slots =
        std::span(batch.slot_ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    parts[static_cast<size_t>(num_parts++)] = {
        .path = path,
        .first_token = first,
        .num_tokens = count,
        .first_seq = first_seq,
        .num_seqs = end_seq - first_seq,
        .adapters = narrow(inputs.adapters, first, count),
        .any_adapter = std::ranges::any_of(slots, [](int32_t slot) { return slot >= 0; })};
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
  const SiteAffines& affines = lora.affines(layer, site);
  if (tables.size() == 1 && affines.empty()) return;

  const auto begin = std::chrono::steady_clock::now();
  std::array<LoraSlice, kMostProducts> slices;
  std::ranges::transform(outputs, slices.begin(), [](const auto& o) { return LoraSlice{o.y}; });
  const auto used = std::span(slices).first(outputs.size());
  for (auto table = std::next(tables.begin()); table != tables.end(); ++table) {
    lora_apply(ctx, used, x, table->a.view(), table->b.view(), inputs.adapters);
  }
  if (!affines.empty()) apply_affines(ctx, used, inputs.adapters, affines);
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
  linear_site(ctx, used, rows, part.path, &adapters);
}

}  // namespace heddle::model
