#include "heddle/ops/lora.h"

#include <algorithm>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/call.h"
#include "bindings/scalars.h"
#include "ops/lora/adapter_table_python.h"
#include "ops/lora/lora_batch_python.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

/// Workspace of lora_shrink; of lora_expand with in_features = 0. On the CPU both need none.
size_t half_workspace_bytes(const ConstTensorView& rows, int64_t in_features, int64_t rank) {
  if (rows.device().type == DeviceType::kCpu) return 0;
  const auto supported = static_cast<int>(std::min<int64_t>(rank, kMaxLoraRank));
  return lora_apply_workspace_bytes(rows.device(), rows.size(0), in_features, 1, supported);
}

/// The rank of stacked weights. A stack of another shape is refused by the operation.
int64_t rank_of(const ConstTensorView& stack, LoraLayout layout) {
  return stack.rank() != 3 ? 0 : stack.size(layout == LoraLayout::kRankMajor ? 1 : 2);
}

/// What describes the weights of a call besides the array itself.
struct WeightOptions {
  const char* layout;
  nb::handle weight_dtype;      // of weights by address; None: that of x or h
  int64_t layer_idx;            // of weights by address
  std::optional<int64_t> rank;  // of weights by address; nothing: that of the call
  int64_t first_rank;           // of weights by address
};

/// The table that `weights` means: an AdapterTable, or for an i64 vector addresses of [layers,
/// rank, features] pages.
/// Nothing for stacked weights, whose view is then in `stack`.
std::optional<LoraTable> table_of(Call& call, const char* name, nb::handle weights,
                                  const WeightOptions& options, const ConstTensorView& in,
                                  int64_t call_rank, int64_t features, ConstTensorView& stack) {
  const AdapterWeights* adapters = nullptr;
  if (nb::try_cast<const AdapterWeights*>(weights, adapters) && adapters != nullptr) {
    return adapters->view();
  }
  stack = call.in(name, weights);
  if (stack.rank() != 1) return std::nullopt;
  const DType dtype = dtype_or("weight_dtype", options.weight_dtype, in.dtype());
  const LoraLayout layout = layout_named(options.layout);
  const int64_t page_rank = options.rank.value_or(call_rank);
  HEDDLE_CHECK(options.first_rank >= 0 && options.first_rank + call_rank <= page_rank,
               "first_rank is ", options.first_rank, ", expected 0 to rank - ", call_rank, " = ",
               page_rank - call_rank);
  LoraTable table =
      LoraTable::from_pointers(stack, dtype, layout, page_rank, features, options.layer_idx);
  // A part of the ranks of each page.
  table.max_rank = static_cast<int32_t>(call_rank);
  table.element_offset +=
      options.first_rank * (layout == LoraLayout::kRankMajor ? table.row_stride : 1);
  return table;
}

void check_matrix(const char* name, const ConstTensorView& t) {
  HEDDLE_CHECK(t.rank() == 2, name, " has rank ", t.rank(), ", expected 2");
}

void shrink(nb::handle y, nb::handle x, nb::handle a, nb::handle rows, float scale, bool accumulate,
            const char* layout, int slice, nb::handle weight_dtype, int64_t layer_idx,
            std::optional<int64_t> rank, int64_t first_rank) {
  Call call;
  const TensorView out = call.out("y", y);
  const ConstTensorView in = call.in("x", x);
  check_matrix("y", out);
  check_matrix("x", in);
  ConstTensorView stack;
  const std::optional<LoraTable> table =
      table_of(call, "a", a, {layout, weight_dtype, layer_idx, rank, first_rank}, in, out.size(1),
               in.size(1), stack);
  const LoraBatch batch = batch_of(call, rows);
  if (table) {
    return call.run(
        [&](const ExecContext& ctx) {
          lora_shrink(ctx, out, in, *table, slice, batch, scale, accumulate);
        },
        half_workspace_bytes(in, in.size(1), table->max_rank));
  }
  const LoraLayout axes = layout_named(layout);
  call.run(
      [&](const ExecContext& ctx) {
        lora_shrink(ctx, out, in, stack, batch, scale, accumulate, axes);
      },
      half_workspace_bytes(in, in.size(1), rank_of(stack, axes)));
}

void expand(nb::handle y, nb::handle h, nb::handle b, nb::handle rows, int64_t slice_offset,
            float scale, bool accumulate, const char* layout, std::optional<int64_t> out_features,
            int slice, nb::handle weight_dtype, int64_t layer_idx, std::optional<int64_t> rank,
            int64_t first_rank) {
  Call call;
  const TensorView out = call.out("y", y);
  const ConstTensorView in = call.in("h", h);
  check_matrix("y", out);
  check_matrix("h", in);
  const int64_t features = out_features.value_or(out.size(1) - slice_offset);
  ConstTensorView stack;
  const std::optional<LoraTable> table =
      table_of(call, "b", b, {layout, weight_dtype, layer_idx, rank, first_rank}, in, in.size(1),
               features, stack);
  const LoraBatch batch = batch_of(call, rows);
  if (table) {
    const bool knows_features =
        !out_features && table->features != nullptr && slice >= 0 && slice < table->num_slices;
    const int64_t width = knows_features ? table->features[slice] : features;
    return call.run(
        [&](const ExecContext& ctx) {
          lora_expand(ctx, out, in, *table, slice, width, batch, slice_offset, scale, accumulate);
        },
        half_workspace_bytes(in, 0, table->max_rank));
  }
  const LoraLayout axes = layout_named(layout);
  call.run(
      [&](const ExecContext& ctx) {
        lora_expand(ctx, out, in, stack, batch, slice_offset, scale, accumulate, axes);
      },
      half_workspace_bytes(in, 0, rank_of(stack, axes)));
}

size_t apply_workspace_bytes(const std::vector<LoraSlice>& slices, const ConstTensorView& x,
                             const LoraTable& a, const LoraBatch& batch) {
  if (!batch.pair_starts) {
    return lora_apply_workspace_bytes(x.device(), x.size(0), x.size(1), a.num_slices, a.max_rank);
  }
  int64_t out_features = 0;
  for (const auto& [y] : slices) {
    if (y.dtype() != DType::kFloat32 && y.rank() == 2) out_features += y.size(1);
  }
  return lora_pairs_workspace_bytes(x.device(), x.size(0), x.size(1), out_features, a.num_slices,
                                    a.max_rank);
}

void apply(nb::handle y, nb::handle x, const AdapterWeights& a, const AdapterWeights& b,
           nb::handle rows) {
  Call call;
  std::vector<LoraSlice> slices;
  for (const TensorView& view : call.outs("y", y)) slices.push_back({view});
  const ConstTensorView in = call.in("x", x);
  check_matrix("x", in);
  const LoraTable table_a = a.view(), table_b = b.view();
  const LoraBatch batch = batch_of(call, rows);
  call.run([&](const ExecContext& ctx) { lora_apply(ctx, slices, in, table_a, table_b, batch); },
           apply_workspace_bytes(slices, in, table_a, batch));
}

void plan_rows(nb::handle plan, nb::handle rows, int64_t num_tokens, int32_t num_slots,
               int32_t max_rank, nb::handle slot_ranks) {
  Call call;
  const TensorView out = call.out("plan", plan);
  LoraBatch batch = batch_of(call, rows);
  batch.plan = {};  // the batch may have the one that is made here
  const ConstTensorView ranks = call.optional_in("slot_ranks", slot_ranks);
  call.run([&](const ExecContext& ctx) {
    lora_plan(ctx, out, batch, num_tokens, num_slots, max_rank, ranks);
  });
}

}  // namespace

void bind_lora(nb::module_& m) {
  m.attr("MAX_LORA_RANK") = kMaxLoraRank;
  nb::class_<AdapterWeights>(m, "AdapterTable",
                             "The weights of all adapters for one half, A or B, of a linear layer "
                             "with one or more slices.\n\n"
                             "Ranks may differ from adapter to adapter. The arrays stay the "
                             "caller's and are kept alive while they\n"
                             "are in the table, not copied. Not to be changed while another thread "
                             "calls an operation with it.\n\n"
                             "On a GPU `set` and `clear` are work of the stream that the arrays' "
                             "framework works on: calls made\n"
                             "before on it, and replays of graphs, see the old adapter, those made "
                             "after the new one. An array that\n"
                             "leaves the table is let go at once; one that other streams still "
                             "read must be kept by the caller.")
      .def(
          "__init__",
          [](AdapterWeights* self, int32_t num_slots, const std::vector<int64_t>& features,
             int32_t max_rank, const char* dtype, const char* layout, nb::handle device,
             bool aligned) {
            new (self) AdapterWeights(device_named(device), num_slots, features, max_rank,
                                      dtype_named("dtype", dtype), layout_named(layout),
                                      aligned ? LoraAlignment::k16Bytes : LoraAlignment::kNone);
          },
          "num_slots"_a, "features"_a, "max_rank"_a, nb::kw_only(), "dtype"_a = "f32",
          "layout"_a = "rank_major", "device"_a = "cpu", "aligned"_a = false,
          "A table without adapters. features: in_features (A) or out_features (B) of each "
          "slice; "
          "device: \"cpu\",\n"
          "\"cuda:0\" and so on, or a torch.device. aligned: promise that weights begin at 16 "
          "bytes, "
          "have rows multiples\n"
          "of 16 bytes apart, and ranks that are multiples of 4 up to 16, of 8 above; CUDA "
          "kernels "
          "are then faster, and\n"
          "`set` refuses other weights.")
      .def("set", &AdapterWeights::set, "slot"_a, "slice"_a, "weight"_a, nb::kw_only(),
           "scale"_a = 1.0f,
           "Puts the weight of one slice of an adapter into its slot: [rank, features[slice]], or "
           "the other\n"
           "way round with layout \"rank_minor\"; of the table's dtype. scale counts in tables of "
           "B alone.")
      .def("clear", &AdapterWeights::clear, "slot"_a,
           "Takes an adapter out: its slot touches nothing.")
      .def_prop_ro("device", [](const AdapterWeights& t) { return name_of(t.view().device); })
      .def_prop_ro("num_slots", [](const AdapterWeights& t) { return t.view().num_slots; })
      .def_prop_ro("max_rank", [](const AdapterWeights& t) { return t.view().max_rank; })
      .def_prop_ro("features", [](const AdapterWeights& t) { return t.features(); });

  m.def("lora_shrink", &shrink, "y"_a, "x"_a, "a"_a, "batch"_a, nb::kw_only(), "scale"_a = 1.0f,
        "accumulate"_a = false, "layout"_a = "rank_major", "slice"_a = 0,
        "weight_dtype"_a = nb::none(), "layer_idx"_a = 0, "rank"_a = nb::none(),
        "first_rank"_a = 0);
  m.def("lora_expand", &expand, "y"_a, "h"_a, "b"_a, "batch"_a, nb::kw_only(), "slice_offset"_a = 0,
        "scale"_a = 1.0f, "accumulate"_a = true, "layout"_a = "rank_minor",
        "out_features"_a = nb::none(), "slice"_a = 0, "weight_dtype"_a = nb::none(),
        "layer_idx"_a = 0, "rank"_a = nb::none(), "first_rank"_a = 0);
  m.def("lora_apply", &apply, "y"_a, "x"_a, "a"_a, "b"_a, "batch"_a);
  m.def("lora_plan", &plan_rows, "plan"_a, "batch"_a, "num_tokens"_a, "num_slots"_a, "max_rank"_a,
        "slot_ranks"_a = nb::none());
  m.def("lora_plan_bytes", &lora_plan_bytes, "num_tokens"_a, "max_rank"_a,
        "Bytes of the `plan` of `heddle.ops.lora_plan`.");
}

}  // namespace heddle::python
