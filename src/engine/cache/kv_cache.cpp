#include "engine/cache/kv_cache.h"

#include <algorithm>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle {

int64_t KvCache::Shape::page_bytes() const {
  return PagedKv::page_bytes(dtype, num_layers, num_kv_heads, page_size, head_dim);
}

KvCache::KvCache(Device device, const Shape& shape, int64_t num_pages)
    : pages_(device, DType::kUInt8, {num_pages, shape.page_bytes()}) {
  for (int i = 0; i < shape.num_layers; ++i) layers_.emplace_back(layer(shape, i));
}

std::span<std::byte> KvCache::bytes_of(PageId page) const {
  const TensorView one = pages_.view().narrow(0, static_cast<int64_t>(page), 1);
  return {one.raw(), static_cast<size_t>(one.size(1))};
}

/// A page has the same layout as one with an address of its own.
PagedKv KvCache::layer(const Shape& shape, int layer_idx) const {
  const TensorView pages = pages_.view();
  PagedKv layer = PagedKv::from_pointers(shape.dtype, pages.device(), shape.num_layers, layer_idx,
                                         shape.num_kv_heads, shape.page_size, shape.head_dim);
  layer.pool = pages.raw();
  layer.num_pages = pages.size(0);
  layer.page_stride = pages.size(1) / static_cast<int64_t>(size_of(shape.dtype));
  return layer;
}

DType kv_type_of(const std::string& name) {
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3}) {
    if (name == kv_type_name(dtype)) return dtype;
  }
  throw_error(ErrorCode::kInvalidArgument, "kv_type is ", files::quote(name),
              ", expected one of f32, f16, bf16, fp8");
}

const char* kv_type_name(DType dtype) { return dtype == DType::kFloat8E4M3 ? "fp8" : name(dtype); }

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
