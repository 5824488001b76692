#include <algorithm>
#include <array>

#include "cuda/sm90/tensor_map.h"

#include "heddle/core/dispatch.h"

#include "core/kernel_log.h"
#include "core/math.h"
#include "ops/linear_site/call/site_call.h"
#include "ops/linear_site/call/site_kernels.h"
#include "ops/linear_site/call/site_slices.h"
#include "ops/linear_site/decode/decode_params_cuda.h"
#include "ops/linear_site/general/general_params.h"
#include "ops/linear_site/packed/run_packed.h"
#include "ops/linear_site/portable/select_portable.h"
#include "ops/linear_site/run/adapter_plan.h"
#include "ops/linear_site/run/run_portable.h"
#include "ops/linear_site/run/run_prompt.h"
#include "ops/lora_device/plan/plan_bytes.h"

namespace heddle::cuda::linear_site {
namespace {

/// The adapters of a call as its launches take them: the plan of all rows, and room for sums.
struct LaunchAdapters {
  const LinearAdapters& given;
  const std::byte* plan;
  uint32_t tag;
  float* partials;
  XSignal* signal;
};

int32_t num_chunks(int64_t in_features) {
  return static_cast<int32_t>(ceil_div(in_features, int64_t{lora::kChunkFeatures}));
}
/// Sums of h are over so many chains of chunks.
int32_t num_chains(int64_t in_features) {
  return std::min(num_chunks(in_features), int32_t{lora::kChains});
}
int64_t partial_floats(int64_t rows, int64_t in_features, int num_slices, int max_rank) {
  return std::min(num_slices, kMaxSlices) * num_chains(in_features) * rows *
         round_up(int64_t{max_rank}, int64_t{lora::kTileRanks});
}

DecodeAdapters pack_adapters(const LaunchAdapters& adapters, int64_t in_features, int first_slice) {
  const LoraTable &a = adapters.given.a, &b = adapters.given.b;
  const ConstTensorView& row_scale = adapters.given.batch.row_scale;
  return {.plan = reinterpret_cast<const lora::WindowPlan*>(adapters.plan),
          .partials = adapters.partials,
          .a = a.entries + first_slice,
          .b = b.entries + first_slice,
          .a_stride = a.num_slices,
          .b_stride = b.num_slices,
          .num_slots = a.num_slots,
          .num_chains = num_chains(in_features),
          .max_rank = a.max_rank,
          .h_steps = h_steps(a.max_rank),
          .plan_tag = adapters.tag,
          .row_scale = row_scale ? row_scale.data<float>() : nullptr,
          .signal = adapters.signal};
}

/// A x of the adapters of a launch, before it.
template <class T>
void run_shrink(const ExecContext& ctx, const LaunchAdapters& adapters, const ConstTensorView& x,
                int num_slices, int first_slice) {
  const LoraTable& a = adapters.given.a;
  const int64_t tiles = x.size(0) * ceil_div(a.max_rank, lora::kTileRanks);
  const ShrinkParams p{.plan = reinterpret_cast<const lora::WindowPlan*>(adapters.plan),
                       .partials = adapters.partials,
                       .a = a.entries + first_slice,
                       .a_stride = a.num_slices,
                       .num_slots = a.num_slots,
                       .num_slices = num_slices,
                       .num_chunks = num_chunks(x.size(1)),
                       .num_chains = num_chains(x.size(1)),
                       .last_tile = static_cast<int32_t>(tiles - 1),
                       .plan_tag = adapters.tag,
                       .in_features = static_cast<int32_t>(x.size(1)),
                       .x = x.raw(),
                       .x_stride = x.stride(0),
                       .signal = adapters.signal};
  // More blocks read more at once. But the products start when all of them have, and next to those
  // of the previous kernel there is room for one a multiprocessor.
  constexpr int64_t kBlocksPerSm = 2;
  const int64_t items = tiles * num_slices * p.num_chains;
  launch_shrink<T>(p, static_cast<int>(std::min(items, kBlocksPerSm * ctx.info.num_sms)),
                   ctx.device.index, ctx.stream);
}

/// One launch of the kernel for compute capability 9.0, of some rows and up to four slices.
template <class T>
void run_decode(const ExecContext& ctx, std::span<const LinearSlice> slices,
                const ConstTensorView& x, const SiteKernel& kernel, const LaunchAdapters* adapters,
                int first_slice) {
  DecodeParams p{};
  const int64_t rows = x.size(0);
  p.x_box_rows = x_box_rows(static_cast<int>(rows));
  p.x = make_tensor_map(x, p.x_box_rows);
  for (size_t s = 0; s < slices.size(); ++s) {
    const LinearSlice& slice = slices[s];
    const int64_t width = slice.weight.size(0);
    if (width > 0) p.weights[s] = make_tensor_map(slice.weight, kernel.tile_outputs);
    p.num_tiles += static_cast<int32_t>(ceil_div(width, int64_t{kernel.tile_outputs}));
    p.slices[s] = {.y = slice.y.raw(),
                   .y_stride = slice.y.stride(0),
                   .bias = slice.bias.raw(),
                   .width = static_cast<int32_t>(width),
                   .end_tile = p.num_tiles};
  }
  if (adapters != nullptr) {
    run_shrink<T>(ctx, *adapters, x, static_cast<int>(slices.size()), first_slice);
    p.adapters = pack_adapters(*adapters, x.size(1), first_slice);
  }
  p.num_slices = static_cast<int32_t>(slices.size());
  p.num_rows = static_cast<int32_t>(rows);
  p.num_boxes = static_cast<int32_t>(ceil_div(x.size(1), int64_t{kBoxFeatures}));
  p.cluster_size = kernel.cluster_size;
  p.stage_boxes = kernel.stage_boxes;
  p.weight_stages = kernel.weight_stages;
  p.x_stages = kernel.x_stages;
  p.max_loading = kernel.max_loading;
  p.y_dtype = slices[0].y.dtype();
  p.faults = ctx.faults;
  launch_decode<T>(p, kernel, ctx.device.index, ctx.stream);
}

template <class T>
void run_general(const ExecContext& ctx, const LinearSlice& slice, const ConstTensorView& x) {
  launch_general<T>(ctx, {.y = slice.y.raw(),
                          .x = x.raw(),
                          .weight = slice.weight.raw(),
                          .bias = slice.bias.raw(),
                          .y_stride = slice.y.stride(0),
                          .x_stride = x.stride(0),
                          .weight_stride = slice.weight.stride(0),
                          .num_rows = x.size(0),
                          .in_features = x.size(1),
                          .width = slice.y.size(1),
                          .y_dtype = slice.y.dtype(),
                          .has_x_vectors = has_vectors(x),
                          .has_weight_vectors = has_vectors(slice.weight)});
}

LinearSlice rows_of(const LinearSlice& slice, int64_t first, int64_t num) {
  LinearSlice rows = slice;
  rows.y = slice.y.narrow(0, first, num);
  return rows;
}

template <class T>
void run_general_slices(const ExecContext& ctx, std::span<const LinearSlice> slices,
                        const ConstTensorView& x) {
  log_choice("linear_site", SiteKernel{});
  for (const LinearSlice& slice : slices) run_general<T>(ctx, slice, x);
}

/// kDecode of up to four slices of a site without adapters, in launches of as many rows as one
/// takes.
template <class T>
void run_rows(const ExecContext& ctx, std::span<const LinearSlice> slices, const ConstTensorView& x,
              int64_t num_outputs) {
  const int64_t tokens = x.size(0);
  SiteCall call = describe(slices, std::min(tokens, kMaxLaunchRows), num_outputs);
  SiteKernel kernel = select_site_kernel(call, ctx.info);
  if (kernel.is_general) {
    if (!run_portable_decode<T>(ctx, slices, x, num_outputs)) {
      run_general_slices<T>(ctx, slices, x);
    }
    return;
  }
  log_choice("linear_site", kernel);
  for (int64_t row = 0; row < tokens; row += kMaxLaunchRows) {
    const int64_t rows = std::min(kMaxLaunchRows, tokens - row);
    if (rows < call.rows) {  // the last ones
      call.rows = rows;
      kernel = select_site_kernel(call, ctx.info);
    }
    LinearSlice part[kMaxSlices];
    for (size_t s = 0; s < slices.size(); ++s) part[s] = rows_of(slices[s], row, rows);
    run_decode<T>(ctx, {part, slices.size()}, x.narrow(0, row, rows), kernel, nullptr, 0);
  }
}

/// The products of all slices, four at a time. `signal`: of A x, where that is before them.
template <class T>
void run_products(const ExecContext& ctx, std::span<const LinearSlice> slices,
                  const ConstTensorView& x, LinearPath path, const XSignal* signal = nullptr) {
  const auto dense = [&](std::span<const LinearSlice> all) {
    const int64_t outputs = sum_out_features(all);
    for_launches(all, [&](std::span<const LinearSlice> some, size_t) {
      if (path == LinearPath::kDecode) return run_rows<T>(ctx, some, x, outputs);
      if (!run_prompt<T>(ctx, some, x) && !run_portable_prompt<T>(ctx, some, x, {})) {
        run_general_slices<T>(ctx, some, x);
      }
    });
  };
  if (!has_packed(slices)) return dense(slices);
  if (path == LinearPath::kDecode) return run_packed<T>(ctx, slices, x, dense, signal);
  const auto slice_products = [&](const LinearSlice& some, size_t, int64_t) { dense({&some, 1}); };
  run_dequantized<T>(ctx, slices, x, slice_products, require_workspace(ctx, "linear_site"));
}

LaunchAdapters take_adapters(const ExecContext& ctx, const LinearAdapters& adapters,
                             const ConstTensorView& x, int num_slices, Workspace& workspace) {
  const int64_t tokens = x.size(0);
  const LaunchPlan plan =
      plan_of(ctx, adapters, tokens, {.windows = true, .grouped = false}, workspace);
  const int64_t floats = partial_floats(tokens, x.size(1), num_slices, adapters.a.max_rank);
  return {.given = adapters,
          .plan = plan.bytes,
          .tag = plan.tag,
          .partials = workspace.take<float>(size_t(floats)).data(),
          .signal = kXSignal.words_in<XSignal>(ctx.exchange)};
}

/// A site with y in f32, side by side in one matrix of the workspace.
class Float32Site {
 public:
  Float32Site(const ExecContext& ctx, std::span<const LinearSlice> slices, int64_t tokens,
              Workspace& workspace)
      : y_(take(ctx, tokens, sum_out_features(slices), workspace)), of_slices_(slices, y_) {
    std::ranges::copy(slices, slices_.begin());
    for (size_t s = 0; s < slices.size(); ++s) slices_[s].y = of_slices_.y(s);
  }
  [[nodiscard]] const TensorView& y() const { return y_; }
  [[nodiscard]] const LoraSlices& y_of_slices() const { return of_slices_; }
  [[nodiscard]] std::span<const LinearSlice> slices() const {
    return {slices_.data(), of_slices_.span().size()};
  }

 private:
  static TensorView take(const ExecContext& ctx, int64_t tokens, int64_t columns,
                         Workspace& workspace) {
    return TensorView(
        reinterpret_cast<std::byte*>(workspace.take<float>(size_t(tokens * columns)).data()),
        DType::kFloat32, ctx.device, {tokens, columns});
  }

  TensorView y_;
  LoraSlices of_slices_;
  std::array<LinearSlice, kMaxSiteSlices> slices_;
};

/// A x, the products in f32, and B h with the rounding in one launch.
template <class T>
void run_around(const ExecContext& ctx, std::span<const LinearSlice> slices,
                const ConstTensorView& x, const LinearAdapters& adapters, Workspace& workspace) {
  const int64_t tokens = x.size(0);
  const int num_slices = static_cast<int>(slices.size());
  const LaunchAdapters around = take_adapters(ctx, adapters, x, num_slices, workspace);
  const Float32Site sums(ctx, slices, tokens, workspace);
  ExpandParams p{.site = {},
                 .products = sums.y().data<float>(),
                 .products_stride = sums.y().stride(0),
                 .first_columns = {}};
  int32_t column = 0;
  for (int s = 0; s < num_slices; ++s) {
    const TensorView& y = slices[size_t(s)].y;
    const auto width = static_cast<int32_t>(y.size(1));
    p.first_columns[s] = column;
    p.site.num_tiles += static_cast<int32_t>(ceil_div(width, kExpandTileOutputs));
    p.site.slices[s] = {.y = y.raw(),
                        .y_stride = y.stride(0),
                        .bias = nullptr,
                        .width = width,
                        .end_tile = p.site.num_tiles};
    column += width;
  }
  p.site.adapters = pack_adapters(around, x.size(1), 0);
  p.site.num_slices = num_slices;
  p.site.num_rows = static_cast<int32_t>(tokens);
  p.site.cluster_size = 1;
  p.site.y_dtype = slices[0].y.dtype();
  p.site.faults = ctx.faults;
  run_shrink<T>(ctx, around, x, num_slices, 0);
  run_products<T>(ctx, sums.slices(), x, LinearPath::kDecode, around.signal);
  launch_expand<T>(p, ctx.device.index, ctx.stream);
}

/// The products in f32, lora_apply to them, and the rounding.
template <class T>
void run_apart(const ExecContext& ctx, std::span<const LinearSlice> slices,
               const ConstTensorView& x, LinearPath path, const LinearAdapters& adapters,
               Workspace& workspace) {
  if (slices[0].y.dtype() == DType::kFloat32) {
    run_products<T>(ctx, slices, x, path);
    return lora_apply(ctx, LoraSlices(slices).span(), x, adapters.a, adapters.b, adapters.batch);
  }
  const Float32Site sums(ctx, slices, x.size(0), workspace);
  run_products<T>(ctx, sums.slices(), x, path);
  lora_apply(ctx, sums.y_of_slices().span(), x, adapters.a, adapters.b, adapters.batch);
  for (size_t s = 0; s < slices.size(); ++s) {
    const TensorView& y = slices[s].y;
    narrow_rows<T>(ctx, {.to = y.raw(),
                         .from = sums.y_of_slices().y(s).raw(),
                         .to_stride = y.stride(0),
                         .from_stride = sums.y().stride(0),
                         .num_rows = x.size(0),
                         .width = y.size(1)});
  }
}

/// The kernels of a site's launches, four slices each.
using LaunchKernels = std::array<SiteKernel, kMaxSiteSlices / kMaxLaunchSlices>;

/// Those of dense weights with adapters of such a rank inside; takes_all: none is_general.
LaunchKernels select_kernels(const ExecContext& ctx, std::span<const LinearSlice> slices,
                             int64_t tokens, int max_rank, bool& takes_all) {
  LaunchKernels kernels;
  takes_all = true;
  const int64_t outputs = sum_out_features(slices);
  for_launches(slices, [&](std::span<const LinearSlice> some, size_t first) {
    SiteCall call = describe(some, tokens, outputs);
    call.max_rank = max_rank;
    SiteKernel& kernel = kernels[first / kMaxLaunchSlices];
    kernel = select_site_kernel(call, ctx.info);
    takes_all &= !kernel.is_general;
  });
  return kernels;
}

/// The adapters inside the launches of the products.
template <class T>
void run_inside(const ExecContext& ctx, std::span<const LinearSlice> slices,
                const ConstTensorView& x, const LinearAdapters& adapters,
                const LaunchKernels& kernels, Workspace& workspace) {
  const LaunchAdapters inside =
      take_adapters(ctx, adapters, x, static_cast<int>(slices.size()), workspace);
  for_launches(slices, [&](std::span<const LinearSlice> some, size_t first) {
    const SiteKernel& kernel = kernels[first / kMaxLaunchSlices];
    log_choice("linear_site", kernel);
    run_decode<T>(ctx, some, x, kernel, &inside, static_cast<int>(first));
  });
}

/// Whether a block of the kernel of B h after other products has enough shared memory.
bool fits_expand(const DeviceInfo& info, int64_t rows, int max_rank) {
  return expand_layout(static_cast<int>(std::min(rows, kMaxLaunchRows)), max_rank).bytes <=
         shared_bytes_of_block(info);
}

template <class T>
void run_with_adapters(const ExecContext& ctx, std::span<const LinearSlice> slices,
                       const ConstTensorView& x, LinearPath path, const LinearAdapters& adapters,
                       const Options& options, Workspace& workspace) {
  SiteRouteCall call{.path = path,
                     .num_slices = static_cast<int>(slices.size()),
                     .rows = x.size(0),
                     .in_features = x.size(1),
                     .max_rank = adapters.a.max_rank,
                     .has_packed = has_packed(slices),
                     .has_vectors = have_vectors(adapters, x.size(1)),
                     .fits_expand = fits_expand(ctx.info, x.size(0), adapters.a.max_rank)};
  LaunchKernels kernels;
  if (path == LinearPath::kPrompt) {
    call.has_kernels = takes_prompt(ctx, slices, x);
  } else if (!call.has_packed && call.rows <= kMaxLaunchRows) {
    kernels = select_kernels(ctx, slices, call.rows, call.max_rank, call.has_kernels);
    call.has_kernels |=
        slices.size() <= size_t{kMaxLaunchSlices} && takes_portable(ctx, slices, path, call.rows);
  }
  SiteRoute route = select_site_route(call, ctx.info);
  if (options.route && route != SiteRoute::kApart) route = *options.route;
  if (options.taken != nullptr) *options.taken = route;
  log_choice("linear_site", route, call);
  switch (route) {
    case SiteRoute::kInside:
      return path == LinearPath::kPrompt
                 ? run_prompt_inside<T>(ctx, slices, x, adapters, workspace)
                 : run_inside<T>(ctx, slices, x, adapters, kernels, workspace);
    case SiteRoute::kAround: return run_around<T>(ctx, slices, x, adapters, workspace);
    case SiteRoute::kApart: return run_apart<T>(ctx, slices, x, path, adapters, workspace);
  }
}

/// x where copies of boxes can read it: rows that do not begin at 16 bytes are copied first. So the
/// kernel, and with it the bits, does not depend on where x lies.
ConstTensorView aligned_x(const ExecContext& ctx, const ConstTensorView& x, Workspace& workspace) {
  if (has_vectors(x)) return x;
  const int64_t tokens = x.size(0), stride = round_up(x.size(1), int64_t{8});
  std::byte* to = workspace.take<std::byte>(size_t(tokens * stride) * size_of(x.dtype())).data();
  copy_rows(ctx, {.to = to,
                  .from = x.raw(),
                  .to_stride = stride,
                  .from_stride = x.stride(0),
                  .num_rows = tokens,
                  .width = x.size(1)});
  return TensorView(to, x.dtype(), ctx.device, {tokens, stride}).narrow(1, 0, x.size(1));
}

}  // namespace

void run(const ExecContext& ctx, std::span<const LinearSlice> slices, const ConstTensorView& x,
         LinearPath path, const LinearAdapters* adapters, const Options& options) {
  if (sum_out_features(slices) == 0) return;
  dispatch_dtype<half, bfloat16>(x.dtype(), "linear_site", [&]<class T>() {
    Workspace& workspace = require_workspace(ctx, "linear_site");
    const Workspace::Scope scope(workspace);
    const ConstTensorView aligned = aligned_x(ctx, x, workspace);
    if (adapters == nullptr) return run_products<T>(ctx, slices, aligned, path);
    run_with_adapters<T>(ctx, slices, aligned, path, *adapters, options, workspace);
  });
}

size_t workspace_bytes(int64_t num_tokens, int64_t in_features, int64_t out_features,
                       int num_slices, int max_rank) {
  const int64_t rows = std::min(num_tokens, kMaxLaunchRows);
  const size_t inside =
      Workspace::bytes_for<std::byte>(lora_plan_bytes(rows, max_rank)) +
      Workspace::bytes_for<float>(size_t(partial_floats(rows, in_features, num_slices, max_rank)));
  const size_t apart =
      max_rank > 0 ? Workspace::bytes_for<float>(size_t(num_tokens * out_features)) : 0;
  const size_t prompt = prompt_workspace_bytes(num_tokens, num_slices, max_rank);
  const int64_t x_stride = round_up(in_features, int64_t{8});
  return inside + std::max(apart, prompt) + portable_workspace_bytes(num_tokens, out_features) +
         dequantized_bytes(in_features, out_features) +
         Workspace::bytes_for<std::byte>(size_t(num_tokens * x_stride) * sizeof(bfloat16));
}

}  // namespace heddle::cuda::linear_site
