#include "ops/lora/run/run_gpu.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"
#include "heddle/core/validate.h"

#include "ops/lora/checks/validate.h"
#include "ops/lora/cpu/row_groups.h"
#include "ops/lora/device/exchange.h"
#include "ops/lora/device/params.h"
#include "ops/lora/run/run_grouped.h"
#include "ops/lora/table/adapter_table_kernels.h"

namespace heddle {
namespace {

using cuda::lora::FusedParams;
using cuda::lora::HalfStep;
using cuda::lora::kMaxSlices;
using cuda::lora::kTileRanks;
using cuda::lora::SiteParams;
using cuda::lora::window_plan_bytes;

constexpr int64_t kRowParts = 16;  // values of a rank tile of a row
constexpr uintptr_t kPlanAlignment = 256;
constexpr int64_t kExchangeHead = cuda::lora::kPartials.begin;  // bytes before the words
constexpr int64_t kExchangeWordBytes = 8;
constexpr int kBlocksOfHalf = 2;  // of a multiprocessor, where a call is two launches

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Partial sums of one row of a launch, whatever its adapter is.
int64_t partials_of_row(int64_t in_features, int64_t num_slices, int64_t max_rank) {
  return num_slices * ceil_div(max_rank, kTileRanks) *
         ceil_div(in_features, cuda::lora::kChunkFeatures) * kRowParts;
}

/// Whether rows begin at multiples of `bytes`, and so near to one another that kernels count in 32 bits.
bool fits_vectors(const void* data, int64_t stride, size_t element, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(data) | uintptr_t(stride) * element) % bytes == 0 &&
         stride <= kMaxVectorStride;
}

/// Whether a kernel may load the rows of every weight 16 bytes at a time.
bool loads_vectors(const LoraTable& table, LoraLayout layout, int64_t rank) {
  if (table.layout != layout) return false;
  if (table.stack == nullptr) return table.is_aligned;
  const size_t element = size_of(table.dtype);
  return fits_vectors(table.stack + table.element_offset * int64_t(element), table.row_stride,
                      element, kVectorBytes) &&
         table.slot_stride * int64_t(element) % kVectorBytes == 0 &&
         (layout == LoraLayout::kRankMajor || rank % lora_rank_unit(rank) == 0);
}

/// Whether all of the call fits the kernel without branches for odd shapes.
bool loads_vectors(const LoraGpuCall& call) {
  const size_t element = size_of(call.table().dtype);
  if (call.a != nullptr) {
    const bool fits = fits_vectors(call.input.raw(), call.input.stride(0), element, kVectorBytes) &&
                      call.input.size(1) % 8 == 0 &&
                      loads_vectors(*call.a, LoraLayout::kRankMajor, call.a->max_rank);
    if (!fits) return false;
  }
  if (call.b == nullptr) return true;
  for (const LoraSlice& slice : call.slices) {
    const bool fits = slice.y.dtype() == call.table().dtype && slice.y.size(1) % 4 == 0 &&
                      fits_vectors(slice.y.raw(), slice.y.stride(0), element, 4 * element);
    if (!fits) return false;
  }
  return loads_vectors(*call.b, LoraLayout::kRankMinor, call.b->max_rank);
}

/// For divide() of the kernels; there are no items to divide where d is 0.
uint32_t reciprocal(int32_t d) {
  return static_cast<uint32_t>(((uint64_t{1} << 32) - 1) / uint64_t(std::max(d, 1)) + 1);
}

/// The window [first, first + rows) of the call, for the slices [slice, slice + num_slices).
SiteParams window_params(const LoraGpuCall& call, int64_t first, int slice, int num_slices) {
  const auto row_of = [&](const auto& t) {
    return t.raw() + first * t.stride(0) * int64_t(size_of(t.dtype()));
  };
  SiteParams p{};
  p.input_dtype = call.input.dtype();
  p.y_dtype = call.slices[0].y.dtype();
  p.accumulate = call.accumulate;
  p.num_slices = num_slices;
  p.scale = call.scale;
  p.input = row_of(call.input);
  p.input_stride = call.input.stride(0);
  p.is_input_aligned = fits_vectors(p.input, p.input_stride, size_of(p.input_dtype), kVectorBytes);
  p.in_features = call.input.size(1);
  p.num_chunks = 1;
  if (call.a != nullptr) {
    const int64_t limit = call.b == nullptr ? call.slices[0].y.size(1) : kMaxLoraRank;
    p.a = addresses(*call.a, call.first_slice + slice, limit);
    p.is_transposed_a = call.a->layout == LoraLayout::kRankMinor;
    p.num_chunks = static_cast<int32_t>(ceil_div(p.in_features, cuda::lora::kChunkFeatures));
  }
  if (call.b != nullptr) {
    const int64_t limit = call.a == nullptr ? call.input.size(1) : kMaxLoraRank;
    p.b = addresses(*call.b, call.first_slice + slice, limit);
    p.is_transposed_b = call.b->layout == LoraLayout::kRankMajor;
  }
  if (call.batch->row_scale) p.row_scale = call.batch->row_scale.data<float>() + first;
  for (int s = 0; s < num_slices; ++s) {
    const TensorView& y = call.slices[size_t(slice + s)].y;
    const int64_t item = call.b == nullptr ? cuda::lora::kSumRanks : cuda::lora::kTileOutputs;
    const int64_t width = call.b == nullptr ? p.a.max_rank : y.size(1);
    p.slices[s] = {.y = row_of(y), .y_stride = y.stride(0), .width = int32_t(y.size(1)), .end = {}};
    for (int double_width = 0; double_width < 2; ++double_width) {
      p.items_per_row_tile[double_width] +=
          static_cast<int32_t>(ceil_div(width, item << double_width));
      p.slices[s].end[double_width] = p.items_per_row_tile[double_width];
    }
  }
  for (int s = num_slices; s < kMaxSlices; ++s) {
    p.slices[s].end[0] = p.slices[s].end[1] = std::numeric_limits<int32_t>::max();
  }
  p.max_rank = std::min(call.a != nullptr ? p.a.max_rank : kMaxLoraRank,
                        call.b != nullptr ? p.b.max_rank : kMaxLoraRank);
  p.last_tile = static_cast<int32_t>(
      cuda::lora::kWindowRows * ceil_div(call.table().max_rank, kTileRanks) - 1);
  p.chunk_reciprocal = reciprocal(p.num_chunks);
  p.slice_reciprocal = reciprocal(p.num_slices);
  p.row_tile_reciprocal[0] = reciprocal(p.items_per_row_tile[0]);
  p.row_tile_reciprocal[1] = reciprocal(p.items_per_row_tile[1]);
  return p;
}

/// Work items of a window in the batch that has most.
struct ItemCounts {
  int64_t shrinks, expands;
};

ItemCounts max_items(const SiteParams& p, const LoraTable& table, int64_t rows) {
  const int64_t groups = std::min<int64_t>(rows, table.num_slots);
  const int64_t row_tiles = groups + (rows - groups) / cuda::lora::kRowTileRows;
  const int64_t tiles = ceil_div(table.max_rank, kTileRanks);
  const ItemCounts most{row_tiles * tiles * p.num_slices * p.num_chunks,
                        row_tiles * p.items_per_row_tile[0]};
  const int64_t divisor = std::max<int64_t>({p.num_chunks, p.items_per_row_tile[0], 1024});
  HEDDLE_CHECK(std::max(most.shrinks, most.expands) * divisor < int64_t{1} << 32,
               "in_features or out_features is too large: ", most.shrinks, " and ", most.expands,
               " work items for ", rows, " rows");
  return most;
}

/// Whether both halves may be one launch, which counts in 32 bits from row to row.
bool fits_fused(const LoraGpuCall& call) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  return call.a != nullptr && call.b != nullptr && call.input.stride(0) <= kMax &&
         std::ranges::all_of(call.slices,
                             [](const LoraSlice& slice) { return slice.y.stride(0) <= kMax; });
}

/// Whether the call is of the form of fused/aligned_cuda.cu: table entries in the layouts that are read in rows, y of the dtype of the weights.
bool fits_aligned_form(const LoraGpuCall& call) {
  const LoraTable &a = *call.a, &b = *call.b;
  return a.entries != nullptr && b.entries != nullptr && a.layout == LoraLayout::kRankMajor &&
         b.layout == LoraLayout::kRankMinor &&
         std::ranges::all_of(call.slices,
                             [&](const LoraSlice& slice) { return slice.y.dtype() == a.dtype; });
}

/// Of a fused launch what both kernels read.
FusedParams fused_params(const ExecContext& ctx, const SiteParams& p, uint32_t spin_limit) {
  FusedParams d{};
  d.arrivals = reinterpret_cast<uint64_t*>(ctx.exchange.data() + cuda::lora::kArrivals.begin);
  d.plan = p.plan;
  d.num_slices = p.num_slices;
  d.num_chunks = p.num_chunks;
  d.chunk_reciprocal = p.chunk_reciprocal;
  d.slice_reciprocal = p.slice_reciprocal;
  d.last_tile = p.last_tile;
  d.input = p.input;
  d.input_stride = static_cast<int32_t>(p.input_stride);
  d.in_features = static_cast<int32_t>(p.in_features);
  d.max_rank = p.max_rank;
  d.scale = p.scale;
  d.partials = ctx.exchange.data() + kExchangeHead;
  d.row_scale = p.row_scale;
  d.spin_limit = spin_limit;
  for (int double_width = 0; double_width < 2; ++double_width) {
    d.items_per_row_tile[double_width] = p.items_per_row_tile[double_width];
    d.row_tile_reciprocal[double_width] = p.row_tile_reciprocal[double_width];
    for (int s = 0; s < kMaxSlices - 1; ++s) d.end[double_width][s] = p.slices[s].end[double_width];
  }
  for (int s = 0; s < kMaxSlices; ++s) {
    const cuda::lora::SliceParams& from = p.slices[s];
    d.slices[s] = {from.y, static_cast<int32_t>(from.y_stride), from.width};
  }
  return d;
}

/// Both halves in one launch, of num_windows windows of up to `rows` rows; `p` is the first one. The exchange has place for their sums.
template <class T>
void run_fused(const ExecContext& ctx, const LoraGpuCall& call, const SiteParams& p, int64_t rows,
               int num_windows) {
  const LoraTable& a = *call.a;
  const ItemCounts items = max_items(p, a, rows);
  const cuda::lora::FusedLaunch launch =
      select_fused_launch(items.shrinks, items.expands, a.max_rank, ctx.info.num_sms, num_windows);
  FusedParams d = fused_params(ctx, p, call.spin_limit);
  d.block_reciprocal = reciprocal(launch.num_blocks);
  if (num_windows == 1 && fits_aligned_form(call) && loads_vectors(call)) {
    d.a = reinterpret_cast<const LoraWeight*>(p.a.base);
    d.b = reinterpret_cast<const LoraWeight*>(p.b.base);
    d.a_stride = static_cast<int32_t>(p.a.slot_stride);
    d.b_stride = static_cast<int32_t>(p.b.slot_stride);
    return cuda::lora::launch_fused_aligned<T>(d, launch, ctx.stream);
  }
  const cuda::lora::FusedGeneralParams any{
      d,
      p.a,
      p.b,
      int64_t(window_plan_bytes(cuda::lora::kWindowRows, a.max_rank)),
      rows * partials_of_row(p.in_features, p.num_slices, a.max_rank),
      static_cast<int32_t>(num_windows == 1 ? rows : call.input.size(0)),
      p.y_dtype,
      p.is_transposed_a,
      p.is_transposed_b,
      launch.one_item_per_block};
  cuda::lora::launch_fused_general<T>(any, launch.num_blocks, num_windows, ctx.device.index,
                                      ctx.stream);
}

template <class T>
void run_window(const ExecContext& ctx, const LoraGpuCall& call, SiteParams p, int64_t rows) {
  const LoraTable& table = call.table();
  const int64_t partials = rows * partials_of_row(p.in_features, p.num_slices, table.max_rank);
  if (fits_fused(call) &&
      int64_t(ctx.exchange.size()) >= kExchangeHead + partials * kExchangeWordBytes) {
    return run_fused<T>(ctx, call, p, rows, 1);
  }
  const ItemCounts items = max_items(p, table, rows);
  const auto run = [&](HalfStep step, int64_t num_items) {
    const int64_t most = int64_t{kBlocksOfHalf} * ctx.info.num_sms;
    const int blocks = static_cast<int>(std::clamp<int64_t>(num_items, 1, most));
    p.block_reciprocal = reciprocal(blocks);
    const cuda::lora::HalfLaunch launch{step, loads_vectors(call), blocks, ctx.device.index};
    cuda::lora::launch_half<T>(p, launch, ctx.stream);
  };
  if (call.a == nullptr) return run(HalfStep::kExpand, items.expands);
  Workspace& workspace = require_workspace(ctx, "lora");
  const Workspace::Scope scope(workspace);
  p.partials = workspace.take<float>(size_t(partials)).data();
  run(HalfStep::kShrink, items.shrinks);
  run(call.b != nullptr ? HalfStep::kExpand : HalfStep::kSum, items.expands);
}

/// Words of the exchange for a window of so many rows whose sums pass through it.
int64_t exchange_words(const LoraGpuCall& call, int64_t rows) {
  const int64_t slices = std::min<int64_t>(std::ssize(call.slices), kMaxSlices);
  return rows * partials_of_row(call.input.size(1), slices, call.table().max_rank);
}

LoraRoute route_of(const ExecContext& ctx, const LoraGpuCall& call) {
  if (call.route) return *call.route;
  const int64_t tokens = call.input.size(0), windows = ceil_div(tokens, cuda::lora::kWindowRows);
  if (!is_prefill(call) || (windows == 1 && (call.a == nullptr || call.b == nullptr)))
    return LoraRoute::kWindows;
  const auto fits_exchange = [&](int64_t words) {
    return kExchangeHead + words * kExchangeWordBytes <= int64_t(ctx.exchange.size());
  };
  const int64_t of_window =
      exchange_words(call, std::min<int64_t>(tokens, cuda::lora::kWindowRows));
  LoraWork work{.tokens = tokens,
                .in_features = call.a != nullptr ? call.input.size(1) : 0,
                .output_tiles = 0,
                .num_slices = static_cast<int>(call.slices.size()),
                .max_rank = call.table().max_rank,
                .num_slots = call.table().num_slots,
                .fits_exchange = fits_exchange(of_window),
                .fits_at_once = fits_fused(call) && fits_exchange(windows * of_window),
                .is_aligned = is_aligned_prefill(call, loads_vectors(call)),
                .num_sms = ctx.info.num_sms};
  for (const LoraSlice& slice : call.slices) {
    work.output_tiles += ceil_div(slice.y.size(1), cuda::lora::kTileOutputs);
  }
  return select_route(work);
}

void check_dtypes(const ExecContext& ctx, const LoraGpuCall& call) {
  const LoraTable& table = call.table();
  if (call.a != nullptr && call.input.dtype() != table.dtype) {
    throw_error(ErrorCode::kUnsupported, "x is ", call.input.dtype(),
                ", expected the dtype of the weights on ", ctx.device, ": ", table.dtype);
  }
  for (const LoraSlice& slice : call.slices) {
    if (slice.y.dtype() == call.slices[0].y.dtype()) continue;
    throw_error(ErrorCode::kUnsupported, "slices[0].y is ", call.slices[0].y.dtype(),
                ", but another slice's is ", slice.y.dtype(), ": on ", ctx.device,
                " all have one dtype");
  }
}

/// The memory of a plan, large enough and aligned as kernels need it.
void check_plan(const ExecContext& ctx, const ConstTensorView& plan, int64_t num_tokens,
                int max_rank) {
  const auto needed = static_cast<int64_t>(lora_plan_bytes(num_tokens, max_rank));
  Dim size("lora_plan_bytes");
  check_device(ctx, {{"plan", plan}});
  check_shape("plan", plan, {&size});
  check_dtype("plan", plan, {DType::kUInt8});
  check_unit_stride("plan", plan);
  HEDDLE_CHECK(size.value() >= needed, "plan.size(0) is ", size.value(),
               ", expected at least lora_plan_bytes = ", needed);
  HEDDLE_CHECK(reinterpret_cast<uintptr_t>(plan.raw()) % kPlanAlignment == 0,
               "plan begins at an address that is no multiple of ", kPlanAlignment);
}

/// Of a plan, what windows read, which comes first.
size_t windows_plan_bytes(int64_t num_tokens, int64_t max_rank) {
  return size_t(ceil_div(num_tokens, cuda::lora::kWindowRows)) *
         window_plan_bytes(cuda::lora::kWindowRows, max_rank);
}

/// The halves of a plan that calls read: that of windows, that of a prefill.
struct PlanUse {
  bool windows, prefill;
};

void make_plan(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
               int32_t num_slots, int32_t max_rank, const ConstTensorView& slot_ranks,
               std::byte* plan, PlanUse use) {
  cuda::lora::PlanParams p{};
  p.plans = plan;
  p.plan_bytes = window_plan_bytes(cuda::lora::kWindowRows, max_rank);
  p.num_tokens = num_tokens;
  p.window_rows = cuda::lora::kWindowRows;
  p.num_slots = num_slots;
  p.max_rank = max_rank;
  p.slot_ids = indices(batch.slot_ids);
  p.seg_starts = indices(batch.seg_starts);
  p.seg_ends = indices(batch.seg_ends);
  p.seg_slots = indices(batch.seg_slots);
  p.slot_ranks = indices(slot_ranks);
  p.num_segments = batch.seg_starts ? static_cast<int32_t>(batch.seg_starts.size(0)) : 0;
  if (use.windows) cuda::lora::plan_windows(p, ctx.stream);
  p.plans = plan + windows_plan_bytes(num_tokens, max_rank);
  if (use.prefill) cuda::lora::plan_grouped(p, ctx.device.index, ctx.stream);
}

}  // namespace

cuda::lora::WeightAddresses addresses(const LoraTable& table, int first_slice, int64_t rank_limit) {
  using Addresses = cuda::lora::WeightAddresses;
  const auto element = int64_t(size_of(table.dtype));
  Addresses a{};
  a.max_rank = static_cast<int32_t>(std::min<int64_t>(table.max_rank, rank_limit));
  if (table.entries != nullptr) {
    a.kind = Addresses::kEntries;
    a.base = reinterpret_cast<const std::byte*>(table.entries + first_slice);
    a.slot_stride = table.num_slices;
    return a;
  }
  a.offset = table.element_offset * element;
  a.row_stride = table.row_stride;
  if (table.pointers != nullptr) {
    a.kind = Addresses::kPointers;
    a.base = reinterpret_cast<const std::byte*>(table.pointers);
    a.slot_stride = table.pointer_stride;
  } else {
    a.kind = Addresses::kStack;
    a.base = table.stack;
    a.slot_stride = table.slot_stride * element;
  }
  return a;
}

cuda::lora::Indices indices(const ConstTensorView& t) {
  if (!t) return {};
  return {t.raw(), t.stride(0), t.dtype() == DType::kInt64};
}

cuda::lora::FusedLaunch select_fused_launch(int64_t num_shrinks, int64_t num_expands, int max_rank,
                                            int num_sms, int num_windows) {
  const int64_t most = std::max<int64_t>({num_shrinks, num_expands, 1});
  const int64_t resident =
      std::max<int64_t>(1, int64_t{cuda::lora::kFusedBlocksPerSm} * num_sms / num_windows);
  return {.has_rank_above_16 = max_rank > kTileRanks,
          .one_item_per_block = most <= resident,
          .num_blocks = static_cast<int>(std::min(most, resident))};
}

void run_on_gpu(const ExecContext& ctx, const char* op, const LoraGpuCall& call) {
  if constexpr (kWithCuda) {
    const LoraTable& table = call.table();
    check_dtypes(ctx, call);
    const int num_slices = static_cast<int>(call.slices.size());
    const int64_t tokens = call.input.size(0);
    if (call.batch->plan) check_plan(ctx, call.batch->plan, tokens, table.max_rank);
    if (validating()) cuda::lora::validate_batch(ctx, *call.batch, tokens, call.a, call.b);
    const LoraRoute route = route_of(ctx, call);
    const bool prefills = route == LoraRoute::kGrouped;
    const bool is_aligned = prefills && is_aligned_prefill(call, loads_vectors(call));
    const std::byte* plan = call.batch->plan.raw();
    std::optional<Workspace::Scope> scope;
    if (plan == nullptr) {
      Workspace& workspace = require_workspace(ctx, op);
      scope.emplace(workspace);
      std::byte* own = workspace.take<std::byte>(lora_plan_bytes(tokens, table.max_rank)).data();
      make_plan(ctx, *call.batch, tokens, table.num_slots, table.max_rank, {}, own,
                {.windows = !prefills, .prefill = prefills});
      plan = own;
    }
    dispatch_dtype<half, bfloat16>(table.dtype, op, [&]<class T>() {
      for (int slice = 0; prefills && slice < num_slices; slice += kMaxSlices) {
        const int count = std::min(num_slices - slice, kMaxSlices);
        run_grouped<T>(ctx, call, is_aligned, window_params(call, 0, slice, count),
                       plan + windows_plan_bytes(tokens, table.max_rank));
      }
      for (int slice = 0; route == LoraRoute::kFusedWindows && slice < num_slices;
           slice += kMaxSlices) {
        const int count = std::min(num_slices - slice, kMaxSlices);
        SiteParams p = window_params(call, 0, slice, count);
        p.plan = reinterpret_cast<const cuda::lora::WindowPlan*>(plan);
        run_fused<T>(ctx, call, p, cuda::lora::kWindowRows,
                     static_cast<int>(ceil_div(tokens, cuda::lora::kWindowRows)));
      }
      if (route != LoraRoute::kWindows) return;
      for (int64_t first = 0; first < tokens; first += cuda::lora::kWindowRows) {
        const int64_t rows = std::min<int64_t>(cuda::lora::kWindowRows, tokens - first);
        for (int slice = 0; slice < num_slices; slice += kMaxSlices) {
          const int count = std::min(num_slices - slice, kMaxSlices);
          SiteParams p = window_params(call, first, slice, count);
          p.plan = reinterpret_cast<const cuda::lora::WindowPlan*>(
              plan + first / cuda::lora::kWindowRows *
                         int64_t(window_plan_bytes(cuda::lora::kWindowRows, table.max_rank)));
          run_window<T>(ctx, call, p, rows);
        }
      }
    });
  } else {
    throw_error(ErrorCode::kUnsupported, op, ": built without CUDA");
  }
}

void lora_plan(const ExecContext& ctx, TensorView plan, const LoraBatch& batch, int64_t num_tokens,
               int32_t num_slots, int32_t max_rank, ConstTensorView slot_ranks) {
  HEDDLE_CHECK(num_tokens >= 0, "num_tokens is ", num_tokens, ", expected at least 0");
  HEDDLE_CHECK(num_slots >= 0, "num_slots is ", num_slots, ", expected at least 0");
  HEDDLE_CHECK(max_rank >= 0 && max_rank <= kMaxLoraRank, "max_rank is ", max_rank,
               ", expected 0 to ", kMaxLoraRank);
  check_batch(ctx, batch, num_tokens);
  if (slot_ranks) {
    Dim slots("num_slots", num_slots);
    check_device(ctx, {{"slot_ranks", slot_ranks}});
    check_shape("slot_ranks", slot_ranks, {&slots});
    check_dtype("slot_ranks", slot_ranks, {DType::kInt32, DType::kInt64});
  }
  check_plan(ctx, plan, num_tokens, max_rank);
  if (ctx.device.type != DeviceType::kCuda) {
    throw_error(ErrorCode::kUnsupported, "lora_plan: ", ctx.device, " needs no plan");
  }
  if constexpr (kWithCuda) {
    if (num_tokens == 0) return;
    if (validating()) {
      const LoraTable slots_alone{.num_slots = num_slots};
      cuda::lora::validate_batch(ctx, batch, num_tokens, &slots_alone, nullptr);
    }
    make_plan(ctx, batch, num_tokens, num_slots, max_rank, slot_ranks, plan.raw(),
              {.windows = true, .prefill = may_prefill(num_tokens, max_rank)});
  } else {
    throw_error(ErrorCode::kUnsupported, "lora_plan: built without CUDA");
  }
}

size_t lora_plan_bytes(int64_t num_tokens, int max_rank) {
  return windows_plan_bytes(num_tokens, max_rank) +
         (may_prefill(num_tokens, max_rank) ? cuda::lora::grouped_plan_bytes(num_tokens) : 0);
}

size_t lora_gpu_workspace_bytes(int64_t num_tokens, int64_t in_features, int num_slices,
                                int max_rank) {
  const int64_t of_row = partials_of_row(in_features, std::min(num_slices, kMaxSlices), max_rank);
  const int64_t rows = std::min<int64_t>(num_tokens, cuda::lora::kWindowRows);
  const int64_t of_grouped =
      in_features == 0 ? 0
                       : grouped_partials(num_tokens, std::min(num_slices, kMaxSlices), max_rank);
  return Workspace::bytes_for<float>(size_t(std::max(rows * of_row, of_grouped))) +
         Workspace::bytes_for<std::byte>(lora_plan_bytes(num_tokens, max_rank));
}

}  // namespace heddle
