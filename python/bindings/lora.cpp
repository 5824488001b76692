#include "heddle/ops/lora.h"

#include <nanobind/stl/vector.h>

#include "adapter_table.h"
#include "call.h"
#include "families.h"
#include "scalars.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

LoraBatch batch_of(Call& call, nb::handle slot_ids, nb::handle seg_starts, nb::handle seg_ends,
                   nb::handle seg_slots, nb::handle row_scale) {
  return {.slot_ids = call.optional_in("slot_ids", slot_ids),
          .seg_starts = call.optional_in("seg_starts", seg_starts),
          .seg_ends = call.optional_in("seg_ends", seg_ends),
          .seg_slots = call.optional_in("seg_slots", seg_slots),
          .row_scale = call.optional_in("row_scale", row_scale)};
}

/// What tells the weights of a call besides the array itself.
struct WeightOptions {
  const char* layout;
  nb::handle weight_dtype;      // of weights by address; None: that of x or h
  int64_t layer_idx;            // of weights by address
  std::optional<int64_t> rank;  // of weights by address; nothing: that of the call
  int64_t first_rank;           // of weights by address
};

/// The table that `weights` means: an AdapterTable, or for an i64 vector addresses of [layers, rank, features] pages.
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

void shrink(nb::handle y, nb::handle x, nb::handle a, nb::handle slot_ids, nb::handle seg_starts,
            nb::handle seg_ends, nb::handle seg_slots, nb::handle row_scale, float scale,
            bool accumulate, const char* layout, int slice, nb::handle weight_dtype,
            int64_t layer_idx, std::optional<int64_t> rank, int64_t first_rank) {
  Call call;
  const TensorView out = call.out("y", y);
  const ConstTensorView in = call.in("x", x);
  check_matrix("y", out);
  check_matrix("x", in);
  ConstTensorView stack;
  const std::optional<LoraTable> table =
      table_of(call, "a", a, {layout, weight_dtype, layer_idx, rank, first_rank}, in, out.size(1),
               in.size(1), stack);
  const LoraBatch batch = batch_of(call, slot_ids, seg_starts, seg_ends, seg_slots, row_scale);
  if (table) {
    return call.run([&](const ExecContext& ctx) {
      lora_shrink(ctx, out, in, *table, slice, batch, scale, accumulate);
    });
  }
  const LoraLayout axes = layout_named(layout);
  call.run([&](const ExecContext& ctx) {
    lora_shrink(ctx, out, in, stack, batch, scale, accumulate, axes);
  });
}

void expand(nb::handle y, nb::handle h, nb::handle b, nb::handle slot_ids, nb::handle seg_starts,
            nb::handle seg_ends, nb::handle seg_slots, nb::handle row_scale, int64_t slice_offset,
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
  const LoraBatch batch = batch_of(call, slot_ids, seg_starts, seg_ends, seg_slots, row_scale);
  if (table) {
    const bool knows_features =
        !out_features && table->features != nullptr && slice >= 0 && slice < table->num_slices;
    const int64_t width = knows_features ? table->features[slice] : features;
    return call.run([&](const ExecContext& ctx) {
      lora_expand(ctx, out, in, *table, slice, width, batch, slice_offset, scale, accumulate);
    });
  }
  const LoraLayout axes = layout_named(layout);
  call.run([&](const ExecContext& ctx) {
    lora_expand(ctx, out, in, stack, batch, slice_offset, scale, accumulate, axes);
  });
}

void apply(nb::handle y, nb::handle x, const AdapterWeights& a, const AdapterWeights& b,
           nb::handle slot_ids, nb::handle seg_starts, nb::handle seg_ends, nb::handle seg_slots,
           nb::handle row_scale) {
  Call call;
  std::vector<LoraSlice> slices;
  for (const TensorView& view : call.outs("y", y)) slices.push_back({view});
  const ConstTensorView in = call.in("x", x);
  check_matrix("x", in);
  const LoraTable table_a = a.view(), table_b = b.view();
  const LoraBatch batch = batch_of(call, slot_ids, seg_starts, seg_ends, seg_slots, row_scale);
  const size_t bytes = lora_apply_workspace_bytes(in.device(), in.size(0), in.size(1),
                                                  table_a.num_slices, table_a.max_rank);
  call.run([&](const ExecContext& ctx) { lora_apply(ctx, slices, in, table_a, table_b, batch); },
           bytes);
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
                             "calls an operation with it.")
      .def(
          "__init__",
          [](AdapterWeights* self, int32_t num_slots, const std::vector<int64_t>& features,
             int32_t max_rank, const char* dtype, const char* layout) {
            new (self) AdapterWeights(num_slots, features, max_rank, dtype_named("dtype", dtype),
                                      layout_named(layout));
          },
          "num_slots"_a, "features"_a, "max_rank"_a, nb::kw_only(), "dtype"_a = "f32",
          "layout"_a = "rank_major",
          "A table without adapters. features: in_features (A) or out_features (B) of each slice.")
      .def("set", &AdapterWeights::set, "slot"_a, "slice"_a, "weight"_a, nb::kw_only(),
           "scale"_a = 1.0f,
           "Puts the weight of one slice of an adapter into its slot: [rank, features[slice]], or "
           "the other\n"
           "way round with layout \"rank_minor\"; of the table's dtype. scale counts in tables of "
           "B alone.")
      .def("clear", &AdapterWeights::clear, "slot"_a,
           "Takes an adapter out: its slot touches nothing.")
      .def_prop_ro("num_slots", [](const AdapterWeights& t) { return t.view().num_slots; })
      .def_prop_ro("max_rank", [](const AdapterWeights& t) { return t.view().max_rank; })
      .def_prop_ro("features", [](const AdapterWeights& t) { return t.features(); });

  m.def("lora_shrink", &shrink, "y"_a, "x"_a, "a"_a, nb::kw_only(), "slot_ids"_a = nb::none(),
        "seg_starts"_a = nb::none(), "seg_ends"_a = nb::none(), "seg_slots"_a = nb::none(),
        "row_scale"_a = nb::none(), "scale"_a = 1.0f, "accumulate"_a = false,
        "layout"_a = "rank_major", "slice"_a = 0, "weight_dtype"_a = nb::none(), "layer_idx"_a = 0,
        "rank"_a = nb::none(), "first_rank"_a = 0);
  m.def("lora_expand", &expand, "y"_a, "h"_a, "b"_a, nb::kw_only(), "slot_ids"_a = nb::none(),
        "seg_starts"_a = nb::none(), "seg_ends"_a = nb::none(), "seg_slots"_a = nb::none(),
        "row_scale"_a = nb::none(), "slice_offset"_a = 0, "scale"_a = 1.0f, "accumulate"_a = true,
        "layout"_a = "rank_minor", "out_features"_a = nb::none(), "slice"_a = 0,
        "weight_dtype"_a = nb::none(), "layer_idx"_a = 0, "rank"_a = nb::none(),
        "first_rank"_a = 0);
  m.def("lora_apply", &apply, "y"_a, "x"_a, "a"_a, "b"_a, nb::kw_only(), "slot_ids"_a = nb::none(),
        "seg_starts"_a = nb::none(), "seg_ends"_a = nb::none(), "seg_slots"_a = nb::none(),
        "row_scale"_a = nb::none());
}

}  // namespace heddle::python
