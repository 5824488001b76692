#include "heddle/ops/linear.h"

#include <nanobind/stl/string.h>

#include "heddle/core/check.h"

#include "bindings/packed_weight.h"
#include "bindings/scalars.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

void multiply_all(nb::handle y, nb::handle x, nb::handle weights) {
  Call call;
  const std::vector<TensorView> outs = call.outs("y", y);
  const ConstTensorView in = call.in("x", x);
  std::vector<PackedWeight> packed;
  call.for_each("weight", weights, [&](const char* name, nb::handle weight) {
    packed.push_back(nb::cast<const OwnedWeight&>(weight).view_for(call, name));
  });
  HEDDLE_CHECK(outs.size() == packed.size(), "y has ", outs.size(), " arrays, weight has ",
               packed.size());
  std::vector<LinearOutput> outputs;
  outputs.reserve(outs.size());
  for (size_t i = 0; i < outs.size(); ++i) outputs.push_back({outs[i], packed[i]});
  call.run_on_cpu([&](const ExecContext& ctx) { linear(ctx, outputs, in); });
}

void multiply(nb::handle y, nb::handle x, nb::handle weight) {
  const OwnedWeight* const packed = as_packed_weight(weight);
  if (packed == nullptr) return multiply_all(y, x, weight);
  Call call;
  const TensorView out = call.out("y", y);
  const ConstTensorView in = call.in("x", x);
  const PackedWeight& view = packed->view_for(call, "weight");
  call.run_on_cpu([&](const ExecContext& ctx) { linear(ctx, out, in, view); });
}

void expand_blocks(nb::handle out, const char* type_name, nb::handle stored) {
  Call call;
  const TensorView values = call.out("out", out);
  check_dtype("out", values, {DType::kFloat32});
  HEDDLE_CHECK(values.rank() == 1, "out has rank ", values.rank(), ", expected 1");
  check_unit_stride("out", values);
  const WeightType type = weight_type_named(type_name);
  const std::span<const std::byte> bytes = stored_bytes_of(call.in("stored", stored), type);
  const auto n = static_cast<size_t>(values.num_elements());
  const size_t expected = stored_bytes(type, values.num_elements());
  HEDDLE_CHECK(n % static_cast<size_t>(block_size(type)) == 0 && bytes.size() == expected,
               "stored has ", bytes.size(), " bytes, expected ", expected, " for ", n,
               " weights of ", type, " in blocks of ", block_size(type));
  call.run_on_cpu([&](const ExecContext& ctx) {
    check_cpu(ctx, "dequantize");
    dequantize({values.data<float>(), n}, type, bytes);
  });
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<OwnedWeight>(
      m, "PackedWeight",
      "A weight [out_features, in_features] repacked for `heddle.ops.linear`, `linear_site` and "
      "`embedding`;\n"
      "owns its bytes, which are the same on every device.")
      .def(nb::init<nb::handle, const char*, int64_t, int64_t>(), "stored"_a, "type"_a,
           "out_features"_a, "in_features"_a,
           "Packs stored rows.\n\n"
           "stored: u8 array of the bytes as a GGUF file holds them, or for F32, F16 and BF16 a "
           "matrix\n"
           "    of that dtype; without gaps, copied.\n"
           "type: \"F32\", \"F16\", \"BF16\", \"Q8_0\", \"Q4_0\", \"Q4_1\", \"Q5_0\", \"Q5_1\", "
           "\"Q4_K\", \"Q5_K\", \"Q6_K\".\n"
           "in_features: a multiple of the type's block, 32 or 256.")
      .def(
          "to", [](const OwnedWeight& w, nb::handle device) { return w.to(device_named(device)); },
          "device"_a,
          "A copy on `device`, \"cpu\", \"cuda:0\" and so on, or a torch.device; complete when "
          "this returns.\n"
          "Like an array it must be kept while calls that use it run, and graphs of them.")
      .def_prop_ro("device", [](const OwnedWeight& w) { return name_of(w.device()); })
      .def_prop_ro("type", [](const OwnedWeight& w) { return name(w.view().type); })
      .def_prop_ro("out_features", [](const OwnedWeight& w) { return w.view().out_features; })
      .def_prop_ro("in_features", [](const OwnedWeight& w) { return w.view().in_features; })
      .def_prop_ro("nbytes", &OwnedWeight::num_bytes, "Bytes of the packed weight.");
  m.def("linear", &multiply, "y"_a, "x"_a, "weight"_a);
  m.def("dequantize", &expand_blocks, "out"_a, "type"_a, "stored"_a);
}

}  // namespace heddle::python
