#include <algorithm>

#include "core/kernel_log.h"
#include "core/math.h"
#include "ops/linear_site/call/site_call.h"
#include "ops/linear_site/call/site_slices.h"
#include "ops/linear_site/portable/exchange.h"
#include "ops/linear_site/portable/portable_params_cuda.h"
#include "ops/linear_site/run/run_portable.h"

namespace heddle::cuda::linear_site {
namespace {

constexpr int kGroupTiles = 16;  // row tiles whose x stays in the L2 cache

/// What both kernels take.
void pack(std::span<const LinearSlice> slices, const ConstTensorView& x,
          const PortableKernel& kernel, PortableParams& p) {
  for (size_t s = 0; s < slices.size(); ++s) {
    const LinearSlice& slice = slices[s];
    const int64_t width = slice.y.size(1);
    const auto bits = reinterpret_cast<uintptr_t>(slice.y.raw()) / size_of(slice.y.dtype()) |
                      uintptr_t(slice.y.stride(0));
    p.num_tiles += static_cast<int32_t>(ceil_div(width, int64_t{kernel.tile_outputs}));
    p.slices[s] = {.y = slice.y.raw(),
                   .weight = slice.weight.raw(),
                   .bias = slice.bias.raw(),
                   .y_stride = slice.y.stride(0),
                   .weight_stride = slice.weight.stride(0),
                   .width = static_cast<int32_t>(width),
                   .end_tile = p.num_tiles,
                   .has_y_pairs = bits % 2 == 0,
                   .has_y_vectors = bits % 8 == 0};
  }
  p.x = x.raw();
  p.x_stride = x.stride(0);
  p.num_slices = static_cast<int32_t>(slices.size());
  p.num_rows = static_cast<int32_t>(x.size(0));
  p.in_features = static_cast<int32_t>(x.size(1));
  p.num_steps = static_cast<int32_t>(ceil_div(x.size(1), int64_t{kPortableStepFeatures}));
  p.y_dtype = slices[0].y.dtype();
}

/// The counters of tiles: those of the context, or zeros in the workspace.
uint32_t* take_counters(const ExecContext& ctx, Workspace& workspace) {
  auto* const counters = kTileCounters.words_in<uint32_t>(ctx.exchange);
  if (counters != nullptr) return counters;
  const std::span<uint32_t> own = workspace.take<uint32_t>(size_t{kPortableCounters});
  HEDDLE_CUDA_CHECK(cudaMemsetAsync(own.data(), 0, own.size_bytes(), ctx.stream));
  return own.data();
}

template <class T>
void run_rows(const ExecContext& ctx, std::span<const LinearSlice> slices, const ConstTensorView& x,
              const PortableKernel& kernel) {
  log_choice("linear_site", kernel);
  PortableDecodeParams p{};
  pack(slices, x, kernel, p);
  p.num_splits = kernel.num_splits;
  p.tile_outputs = kernel.tile_outputs;
  p.stage_boxes = kernel.stage_boxes;
  Workspace& workspace = require_workspace(ctx, "linear_site");
  const Workspace::Scope scope(workspace);
  if (p.num_splits > 1) {
    HEDDLE_CHECK(p.num_tiles <= kPortableCounters, "linear_site: too many tiles");
    const int64_t parts =
        int64_t{p.num_tiles} * p.num_splits * p.tile_outputs * round_up(x.size(0), int64_t{8}) / 4;
    p.parts = reinterpret_cast<float4*>(workspace.take<float>(size_t(4 * parts)).data());
    p.counters = take_counters(ctx, workspace);
  }
  launch_portable<T>(p, kernel, ctx.device.index, ctx.stream);
}

}  // namespace

template <class T>
bool run_portable_decode(const ExecContext& ctx, std::span<const LinearSlice> slices,
                         const ConstTensorView& x, int64_t num_outputs) {
  const int64_t tokens = x.size(0);
  SiteCall call = describe(slices, std::min(tokens, kMaxLaunchRows), num_outputs);
  if (select_portable_decode(call, ctx.info).is_general) return false;
  for (int64_t row = 0; row < tokens; row += kMaxLaunchRows) {
    call.rows = std::min(kMaxLaunchRows, tokens - row);
    LinearSlice part[kMaxLaunchSlices];
    for (size_t s = 0; s < slices.size(); ++s) {
      part[s] = slices[s];
      part[s].y = slices[s].y.narrow(0, row, call.rows);
    }
    run_rows<T>(ctx, {part, slices.size()}, x.narrow(0, row, call.rows),
                select_portable_decode(call, ctx.info));
  }
  return true;
}

template <class T>
bool run_portable_prompt(const ExecContext& ctx, std::span<const LinearSlice> slices,
                         const ConstTensorView& x, const PromptAdapters& adapters) {
  const PortableKernel kernel =
      select_portable_prompt(describe(slices, x.size(0), sum_out_features(slices)), ctx.info);
  if (kernel.is_general) return false;
  log_choice("linear_site", kernel);
  PortablePromptParams p{};
  pack(slices, x, kernel, p);
  p.adapters = adapters;
  p.num_row_tiles = static_cast<int32_t>(ceil_div(x.size(0), int64_t{kPortableTileRows}));
  p.group_tiles = kGroupTiles;
  launch_portable<T>(p, kernel, ctx.device.index, ctx.stream);
  return true;
}

bool takes_portable(const ExecContext& ctx, std::span<const LinearSlice> slices, LinearPath path,
                    int64_t rows) {
  const SiteCall call = describe(slices, rows, sum_out_features(slices));
  return !(path == LinearPath::kDecode ? select_portable_decode(call, ctx.info)
                                       : select_portable_prompt(call, ctx.info))
              .is_general;
}

size_t portable_workspace_bytes(int64_t num_tokens, int64_t num_outputs) {
  const int64_t rows = std::min(num_tokens, kMaxLaunchRows);
  return Workspace::bytes_for<float>(size_t(4 * portable_parts(rows, num_outputs))) +
         Workspace::bytes_for<uint32_t>(size_t{kPortableCounters});
}

template bool run_portable_decode<half>(const ExecContext&, std::span<const LinearSlice>,
                                        const ConstTensorView&, int64_t);
template bool run_portable_decode<bfloat16>(const ExecContext&, std::span<const LinearSlice>,
                                            const ConstTensorView&, int64_t);
template bool run_portable_prompt<half>(const ExecContext&, std::span<const LinearSlice>,
                                        const ConstTensorView&, const PromptAdapters&);
template bool run_portable_prompt<bfloat16>(const ExecContext&, std::span<const LinearSlice>,
                                            const ConstTensorView&, const PromptAdapters&);

}  // namespace heddle::cuda::linear_site
