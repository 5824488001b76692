#include "bindings/packed_weight.h"

#include <cstring>
#include <new>
#include <string>

#include "heddle/core/check.h"
#include "heddle/core/product.h"

namespace heddle::python {
namespace {

constexpr std::align_val_t kAlignment{64};

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

void OwnedWeight::Free::operator()(std::byte* data) const { ::operator delete[](data, kAlignment); }

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
  num_bytes_ = packed_bytes(type, out_features, in_features);
  data_.reset(static_cast<std::byte*>(::operator new[](num_bytes_, kAlignment)));
  view_ = {type, out_features, in_features, data_.get()};
  call.run_on_cpu([&](const ExecContext& ctx) {
    check_cpu(ctx, "PackedWeight");
    pack_rows(ctx, {data_.get(), num_bytes_}, type, out_features, in_features, 0, out_features,
              bytes);
  });
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
