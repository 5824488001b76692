#include "bindings/packed_weight.h"

#include <cstring>
#include <string>

#include "heddle/core/check.h"
#include "heddle/core/product.h"

namespace heddle::python {
namespace {

WeightType dense_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return WeightType::kF32;
    case DType::kFloat16: return WeightType::kF16;
    case DType::kBFloat16: return WeightType::kBF16;
    default:
      throw_error(ErrorCode::kUnsupported, "stored is ", dtype,
                  ", supported: u8 for stored bytes, f32, f16, bf16");
  }
}

}  // namespace

OwnedWeight::OwnedWeight(nb::handle stored, const char* type_name, int64_t out_features,
                         int64_t in_features) {
  const WeightType type = weight_type_named(type_name);
  HEDDLE_CHECK(out_features >= 0 && in_features >= 0, "out_features and in_features are ",
               out_features, " and ", in_features, ", expected at least 0");
  Call call;
  const ConstTensorView tensor = call.in("stored", stored);
  const std::span<const std::byte> bytes = stored_bytes_of(tensor, type);
  HEDDLE_CHECK(in_features % block_size(type) == 0, "in_features is ", in_features,
               ", expected a multiple of ", block_size(type), " for ", type);
  const auto expected = static_cast<size_t>(checked_product(
      "stored bytes", {out_features, static_cast<int64_t>(stored_bytes(type, in_features))}));
  HEDDLE_CHECK(bytes.size() == expected, "stored has ", bytes.size(), " bytes, expected ", expected,
               " for ", type, " [", out_features, ", ", in_features, "]");
  call.run_on_cpu([&](const ExecContext& ctx) {
    check_cpu(ctx, "PackedWeight");
    *this = OwnedWeight(Device{}, {type, out_features, in_features});
    pack_rows(ctx, {data_.get(), num_bytes_}, type, out_features, in_features, 0, out_features,
              bytes);
  });
}

OwnedWeight::OwnedWeight(Device device, const PackedWeight& like)
    : device_(device),
      num_bytes_(packed_bytes(like.type, like.out_features, like.in_features)),
      data_(allocate_zeroed(device, num_bytes_)),
      view_{like.type, like.out_features, like.in_features, data_.get()} {}

OwnedWeight OwnedWeight::to(Device device) const {
  const auto on_cpu = [](Device d) { return d.type == DeviceType::kCpu; };
  if (!on_cpu(device_) && !on_cpu(device)) return to(Device{}).to(device);
  const nb::gil_scoped_release unlocked;
  OwnedWeight copy(device, view_);
  const ScopedDevice current(on_cpu(device) ? device_ : device);
  if (on_cpu(device)) {
    copy_to_host({.device = device_}, {copy.data_.get(), num_bytes_}, data_.get());
  } else {
    copy_from_host({.device = device}, copy.data_.get(), {data_.get(), num_bytes_});
  }
  return copy;
}

const PackedWeight& OwnedWeight::view_for(const Call& call, const char* name) const {
  HEDDLE_CHECK(device_ == call.device(), name, " is on ", device_, ", but the arrays are on ",
               call.device());
  return view_;
}

const OwnedWeight* as_packed_weight(nb::handle object) {
  const OwnedWeight* packed = nullptr;
  return nb::try_cast<const OwnedWeight*>(object, packed) ? packed : nullptr;
}

WeightType weight_type_named(const char* wanted) {
  std::string known;
  for (int i = 0; i <= static_cast<int>(WeightType::kQ6K); ++i) {
    const auto type = static_cast<WeightType>(i);
    if (std::strcmp(name(type), wanted) == 0) return type;
    known += std::string(known.empty() ? "" : ", ") + name(type);
  }
  throw_error(ErrorCode::kInvalidArgument, "type is \"", wanted, "\", expected one of ", known);
}

std::span<const std::byte> stored_bytes_of(const ConstTensorView& stored, WeightType type) {
  int64_t expected = 1;
  for (int d = stored.rank(); d-- > 0; expected *= stored.size(d)) {
    HEDDLE_CHECK(stored.size(d) <= 1 || stored.stride(d) == expected, "stored.stride(", d, ") is ",
                 stored.stride(d), ", expected ", expected, ": it must have no gaps");
  }
  if (stored.dtype() != DType::kUInt8) {
    const WeightType dense = dense_type(stored.dtype());
    HEDDLE_CHECK(dense == type, "stored is ", stored.dtype(), ", expected u8 or the dtype of ",
                 type);
  }
  return {stored.raw(), static_cast<size_t>(stored.num_elements()) * size_of(stored.dtype())};
}

}  // namespace heddle::python
