#include "engine/cache/kv_cache.h"

#include <algorithm>
#include <array>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle {

int64_t KvCache::Shape::page_bytes() const {
  constexpr int64_t kKeysAndValues = 2;
  return static_cast<int64_t>(size_of(dtype)) * kKeysAndValues * num_layers * num_kv_heads *
         page_size * head_dim;
}

KvCache::KvCache(Device device, const Shape& shape, int64_t num_pages)
    : pages_(
          device, shape.dtype,
          {num_pages, shape.num_layers, 2, shape.num_kv_heads, shape.page_size, shape.head_dim}) {
  for (int i = 0; i < shape.num_layers; ++i) layers_.emplace_back(layer(i));
}

std::span<std::byte> KvCache::bytes_of(PageId page) const {
  const TensorView one = pages_.view().narrow(0, static_cast<int64_t>(page), 1);
  return {one.raw(), pages_.num_bytes() / static_cast<size_t>(pages_.view().size(0))};
}

PagedKv KvCache::layer(int layer_idx) const {
  const TensorView pages = pages_.view();
  // K or V of a layer: [num_pages, num_kv_heads, page_size, head_dim].
  const auto half = [&](int64_t kv) {
    const TensorView part = pages.narrow(1, layer_idx, 1).narrow(2, kv, 1);
    const std::array<int64_t, 4> shape{part.size(0), part.size(3), part.size(4), part.size(5)};
    const std::array<int64_t, 4> strides{part.stride(0), part.stride(3), part.stride(4),
                                         part.stride(5)};
    return TensorView(part.raw(), part.dtype(), part.device(), shape, strides);
  };
  return PagedKv::from_pool(half(0), half(1));
}

DType kv_type_of(const std::string& name) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (name == heddle::name(dtype)) return dtype;
  }
  throw_error(ErrorCode::kInvalidArgument, "kv_type is ", files::quote(name),
              ", expected one of f32, f16, bf16");
}

int64_t choose_num_pages(int64_t kv_memory, int64_t available, const KvCache::Shape& shape,
                         int64_t max_pages) {
  const int64_t page_bytes = shape.page_bytes();
  if (kv_memory == 0) return std::clamp<int64_t>(available / 2 / page_bytes, 1, max_pages);
  HEDDLE_CHECK(kv_memory >= page_bytes, "kv_memory is ", kv_memory,
               " bytes, expected at least a page of ", shape.page_size, " tokens, which takes ",
               page_bytes);
  return std::min(kv_memory / page_bytes, max_pages);
}

}  // namespace heddle
