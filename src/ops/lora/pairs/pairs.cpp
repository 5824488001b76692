#include "ops/lora/pairs/pairs.h"

#include <array>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/product.h"
#include "heddle/core/validate.h"

#include "core/scoped_operation.h"
#include "cpu/index_array.h"
#include "ops/lora/lora_apply.h"
#include "ops/lora/pairs/pairs_kernels.h"
#include "ops/lora_device/call/pack_site.h"
#include "ops/lora_device/checks/check_call.h"
#include "ops/lora_device/checks/check_sizes.h"
#include "ops/lora_device/checks/validate.h"
#include "ops/lora_device/cpu/product.h"

// Pass i of a window adds the i-th pair of each token, as lora_apply adds that of an id, to y in
// f32: so no pass writes a row twice, and a row's pairs come in order. y of f16 or bf16 is widened
// into the workspace before the first pass and rounded after the last.

namespace heddle {
namespace {

constexpr int kMaxSlices = cuda::lora::kMaxSlices;      // that are taken together
static_assert(kWindowRows <= cuda::lora::kWindowRows);  // so a pass is one launch

/// What a window of tokens is made of; views hold its rows alone.
struct PairWindow {
  LoraSite site;    // y as the caller has it
  LoraSite passes;  // the same where y is f32, else its sums
  LoraBatch batch;
  int32_t* slot_ids;  // [rows] of a pass
  float* factors;     // [rows] of a pass

  [[nodiscard]] int64_t rows() const { return site.input.size(0); }
};

bool has_sums(const LoraSlice& slice) { return slice.y.dtype() != DType::kFloat32; }

int64_t sum_columns(std::span<const LoraSlice> slices) {
  int64_t columns = 0;
  for (const LoraSlice& slice : slices) {
    if (has_sums(slice)) columns += pair_sum_columns(slice.y.size(1));
  }
  return columns;
}

/// The steps of a window on the CPU.
class CpuSteps {
 public:
  CpuSteps(const ExecContext& ctx, const PairWindow& window)
      : ctx_(ctx), w_(window), starts_(window.batch.pair_starts), slots_(window.batch.pair_slots) {}

  [[nodiscard]] int64_t num_passes() const {
    int64_t most = 0;
    for (int64_t t = 0; t < w_.rows(); ++t) most = std::max(most, end(t) - begin(t));
    return most;
  }
  void pick(int64_t index) const {
    const LoraBatch& batch = w_.batch;
    for (int64_t t = 0; t < w_.rows(); ++t) {
      const int64_t pair = begin(t) + index;
      w_.slot_ids[t] = pair < end(t) ? valid_slot(pair) : kNoAdapter;
      if (w_.slot_ids[t] == kNoAdapter) continue;
      w_.factors[t] = (batch.pair_scales ? batch.pair_scales.data<float>()[pair] : 1.0f) *
                      (batch.row_scale ? batch.row_scale.data<float>()[t] : 1.0f);
    }
  }
  void copy(LoraPairCopy copy) const {
    const auto num_slices = static_cast<int64_t>(w_.site.slices.size());
    parallel_for(ctx_, w_.rows() * num_slices, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) copy_row(copy, i / num_slices, i % num_slices);
    });
  }

 private:
  [[nodiscard]] int64_t num_pairs() const { return w_.batch.pair_slots.size(0); }
  /// The pairs of token t that count are [begin, end); none lies outside the arrays, whatever the
  /// starts are.
  [[nodiscard]] int64_t begin(int64_t t) const {
    return std::clamp<int64_t>(starts_[t], 0, num_pairs());
  }
  [[nodiscard]] int64_t end(int64_t t) const {
    const int64_t end = std::clamp<int64_t>(starts_[t + 1], 0, num_pairs());
    const std::optional<int64_t>& most = w_.batch.max_pairs;
    return most && end - begin(t) > *most ? begin(t) + *most : end;
  }
  [[nodiscard]] int32_t valid_slot(int64_t pair) const {
    const int64_t slot = slots_[pair];
    return slot >= 0 && slot < w_.site.a->num_slots ? static_cast<int32_t>(slot) : kNoAdapter;
  }
  [[nodiscard]] bool is_touched(int64_t t, int64_t slice) const {
    for (int64_t pair = begin(t); pair < end(t); ++pair) {
      const int32_t slot = valid_slot(pair);
      if (slot != kNoAdapter && w_.site.a->weight(slot, slice).data != nullptr &&
          w_.site.b->weight(slot, slice).data != nullptr) {
        return true;
      }
    }
    return false;
  }
  void copy_row(LoraPairCopy copy, int64_t t, int64_t s) const {
    const LoraSlice& slice = w_.site.slices[size_t(s)];
    if (!has_sums(slice) || !is_touched(t, w_.site.first_slice + s)) return;
    auto* sums = reinterpret_cast<float*>(row_of(w_.passes.slices[size_t(s)].y, t));
    std::byte* y = row_of(slice.y, t);
    if (copy == LoraPairCopy::kWiden) {
      cpu::lora::widen_outputs(sums, y, slice.y.dtype(), slice.y.size(1));
    } else {
      cpu::lora::narrow_outputs(y, sums, slice.y.dtype(), slice.y.size(1));
    }
  }

  const ExecContext& ctx_;
  const PairWindow& w_;
  cpu::IndexArray starts_, slots_;
};

/// The same on a CUDA device.
class CudaSteps {
 public:
  CudaSteps(const ExecContext& ctx, const PairWindow& window)
      : stream_(ctx.stream),
        w_(window),
        pairs_{
            .starts = cuda::ConstIndexVector(window.batch.pair_starts),
            .slots = cuda::ConstIndexVector(window.batch.pair_slots),
            .scales = window.batch.pair_scales ? window.batch.pair_scales.data<float>() : nullptr,
            .row_scale = window.batch.row_scale ? window.batch.row_scale.data<float>() : nullptr,
            .num_pairs = window.batch.pair_slots.size(0),
            .max_pairs = *window.batch.max_pairs,
            .num_tokens = static_cast<int32_t>(window.rows()),
            .num_slots = window.site.a->num_slots} {}

  [[nodiscard]] int64_t num_passes() const { return std::min(pairs_.max_pairs, pairs_.num_pairs); }
  void pick(int64_t index) const {
    cuda::lora::pick_pairs(pairs_, index, w_.slot_ids, w_.factors, stream_);
  }
  void copy(LoraPairCopy copy) const {
    const LoraSite& site = w_.site;
    cuda::lora::PairSite p{};
    p.a = addresses(*site.a, site.first_slice, kMaxLoraRank);
    p.b = addresses(*site.b, site.first_slice, kMaxLoraRank);
    p.num_slices = static_cast<int32_t>(site.slices.size());
    for (size_t s = 0; s < site.slices.size(); ++s) {
      if (!has_sums(site.slices[s])) continue;
      const TensorView &y = site.slices[s].y, &sums = w_.passes.slices[s].y;
      p.slices[s] = {y.raw(), y.stride(0), sums.data<float>(), y.size(1), y.dtype()};
      p.sums_stride = sums.stride(0);
      p.widest = std::max(p.widest, y.size(1));
    }
    if (p.widest > 0) cuda::lora::copy_touched_rows(pairs_, p, copy, stream_);
  }

 private:
  cudaStream_t stream_;
  const PairWindow& w_;
  cuda::lora::Pairs pairs_;
};

template <class Steps>
void run_window(const ExecContext& ctx, const PairWindow& w) {
  const Steps steps(ctx, w);
  const int64_t num_passes = steps.num_passes();
  if (num_passes == 0) return;
  const auto rows_of = [&](const void* data, DType dtype) {
    return ConstTensorView(static_cast<const std::byte*>(data), dtype, ctx.device, {w.rows()});
  };
  LoraBatch pass = LoraBatch::from_ids(rows_of(w.slot_ids, DType::kInt32));
  pass.row_scale = rows_of(w.factors, DType::kFloat32);
  const bool any_sums = std::ranges::any_of(w.site.slices, has_sums);
  if (any_sums) steps.copy(LoraPairCopy::kWiden);
  for (int64_t index = 0; index < num_passes; ++index) {
    steps.pick(index);
    apply_site(ctx, w.passes, pass);
  }
  if (any_sums) steps.copy(LoraPairCopy::kNarrow);
}

/// Up to kMaxSlices slices, window by window.
void apply_slices(const ExecContext& ctx, Workspace& workspace, const LoraSite& site,
                  const LoraBatch& batch) {
  const Workspace::Scope scope(workspace);
  const int64_t tokens = site.input.size(0), columns = sum_columns(site.slices);
  const int64_t window = std::min(tokens, pair_window_rows(columns));
  int32_t* slot_ids = workspace.take<int32_t>(size_t(window)).data();
  float* factors = workspace.take<float>(size_t(window)).data();
  float* sums = workspace.take<float>(size_t(window * columns)).data();

  for (int64_t first = 0; first < tokens; first += window) {
    const int64_t rows = std::min(window, tokens - first);
    std::array<LoraSlice, kMaxSlices> of_site, of_passes;
    int64_t column = 0;
    for (size_t s = 0; s < site.slices.size(); ++s) {
      of_site[s] = of_passes[s] = {site.slices[s].y.narrow(0, first, rows)};
      if (!has_sums(of_site[s])) continue;
      const int64_t width = of_site[s].y.size(1);
      const std::array<int64_t, 2> shape{rows, width}, strides{columns, 1};
      of_passes[s].y = TensorView(reinterpret_cast<std::byte*>(sums + column), DType::kFloat32,
                                  ctx.device, shape, strides);
      column += pair_sum_columns(width);
    }
    PairWindow w{
        .site = site, .passes = site, .batch = batch, .slot_ids = slot_ids, .factors = factors};
    w.site.input = w.passes.input = site.input.narrow(0, first, rows);
    w.site.slices = std::span(of_site).first(site.slices.size());
    w.passes.slices = std::span(of_passes).first(site.slices.size());
    w.batch.pair_starts = batch.pair_starts.narrow(0, first, rows + 1);
    if (batch.row_scale) w.batch.row_scale = batch.row_scale.narrow(0, first, rows);
    if (ctx.device.type != DeviceType::kCuda) {
      run_window<CpuSteps>(ctx, w);
    } else if constexpr (kWithCuda) {
      const ScopedOperation operation("lora_apply");
      run_window<CudaSteps>(ctx, w);
    }
  }
}

}  // namespace

void apply_pairs(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch) {
  if (ctx.device.type == DeviceType::kCuda) {
    if constexpr (kWithCuda) {
      if (validating()) cuda::lora::validate_batch(ctx, batch, site.input.size(0), site.a, site.b);
    } else {
      throw_error(ErrorCode::kUnsupported, "lora_apply: built without CUDA");
    }
  }
  Workspace& workspace = require_workspace(ctx, "lora_apply");
  for (size_t s = 0; s < site.slices.size(); s += kMaxSlices) {
    LoraSite some = site;
    some.slices = site.slices.subspan(s, std::min<size_t>(kMaxSlices, site.slices.size() - s));
    some.first_slice = static_cast<int>(s);
    apply_slices(ctx, workspace, some, batch);
  }
}

size_t lora_pairs_workspace_bytes(Device device, int64_t num_tokens, int64_t in_features,
                                  int64_t out_features, int num_slices, int max_rank) {
  check_sizes(num_tokens, max_rank);
  check_extent("out_features", out_features);
  check_extent("num_slices", num_slices);
  const auto rows = std::min<int64_t>(num_tokens, kWindowRows);
  // Monotonic in the columns, so that a bound of them gives a bound of the bytes.
  const int64_t columns = out_features + (pair_sum_columns(1) - 1) * num_slices;
  const int64_t sums = std::min(rows * columns, std::max(kMaxPairSums, columns));
  return lora_apply_workspace_bytes(device, rows, in_features, num_slices, max_rank) +
         Workspace::bytes_for<int32_t>(size_t(rows)) + Workspace::bytes_for<float>(size_t(rows)) +
         Workspace::bytes_for<float>(size_t(sums));
}

}  // namespace heddle
