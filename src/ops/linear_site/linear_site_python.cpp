#include "heddle/ops/linear_site.h"

#include <optional>
#include <string_view>

#include "heddle/core/check.h"

#include "bindings/packed_weight.h"
#include "ops/lora/adapter_table_python.h"
#include "ops/lora/lora_batch_python.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

LinearPath path_named(std::string_view name) {
  if (name == "decode") return LinearPath::kDecode;
  if (name == "prompt") return LinearPath::kPrompt;
  throw_error(ErrorCode::kInvalidArgument, "path is \"", name,
              "\", expected \"decode\" or \"prompt\"");
}

void check_count(const char* name, size_t count, size_t num_outputs) {
  HEDDLE_CHECK(count == num_outputs, "y has ", num_outputs, " arrays, ", name, " has ", count);
}

std::vector<LinearSlice> slices_of(Call& call, nb::handle y, nb::handle weight, nb::handle bias) {
  const std::vector<TensorView> outs = call.outs("y", y);
  std::vector<LinearSlice> slices;
  call.for_each("weight", weight, [&](const char* name, nb::handle item) {
    LinearSlice& slice = slices.emplace_back();
    if (const OwnedWeight* const packed = as_packed_weight(item)) {
      slice.packed = packed->view_for(call, name);
    } else {
      slice.weight = call.in(name, item);
    }
  });
  check_count("weight", slices.size(), outs.size());
  std::vector<ConstTensorView> biases(outs.size());
  if (!bias.is_none()) biases = call.ins("bias", bias);
  check_count("bias", biases.size(), outs.size());
  for (size_t s = 0; s < outs.size(); ++s) slices[s].y = outs[s], slices[s].bias = biases[s];
  return slices;
}

size_t workspace_bytes(std::span<const LinearSlice> slices, const ConstTensorView& x,
                       const std::optional<LinearAdapters>& adapters) {
  int64_t out_features = 0;
  for (const LinearSlice& slice : slices) {
    if (slice.y.rank() == 2) out_features += slice.y.size(1);  // else the operation refuses it
  }
  const bool has_pairs = adapters && adapters->batch.pair_starts;
  return linear_site_workspace_bytes(x.device(), x.size(0), x.size(1), out_features,
                                     static_cast<int>(slices.size()),
                                     adapters ? adapters->a.max_rank : 0, has_pairs ? 1 : 0);
}

void run_site(nb::handle y, nb::handle x, nb::handle weight, nb::handle bias, const char* path,
              const PyAdapterTable* a, const PyAdapterTable* b, nb::handle rows) {
  Call call;
  const std::vector<LinearSlice> slices = slices_of(call, y, weight, bias);
  const ConstTensorView in = call.in("x", x);
  HEDDLE_CHECK(in.rank() == 2, "x has rank ", in.rank(), ", expected 2");
  std::optional<LinearAdapters> adapters;
  const int given = int{a != nullptr} + int{b != nullptr} + int{!rows.is_none()};
  HEDDLE_CHECK(given == 0 || given == 3, given, " of a, b and batch given, expected all or none");
  if (given == 3) adapters = {a->view(), b->view(), batch_of(call, rows)};
  const LinearPath how = path_named(path);
  call.run(
      [&](const ExecContext& ctx) {
        linear_site(ctx, slices, in, how, adapters ? &*adapters : nullptr);
      },
      workspace_bytes(slices, in, adapters));
}

}  // namespace

void bind_linear_site(nb::module_& m) {
  m.def("linear_site", &run_site, "y"_a, "x"_a, "weight"_a, nb::kw_only(), "bias"_a = nb::none(),
        "path"_a = "decode", "a"_a = nb::none(), "b"_a = nb::none(), "batch"_a = nb::none());
}

}  // namespace heddle::python
