#include "engine/kv_cache.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>

#include "heddle/core/error.h"

namespace heddle {

KvCache::KvCache(const Shape& shape) : shape_(shape) {
  const int64_t page_elements =
      int64_t{shape.num_layers} * 2 * shape.num_kv_heads * shape.page_size * shape.head_dim;
  bytes_ =
      static_cast<size_t>(std::max<int64_t>(shape.num_pages * page_elements, 1)) * sizeof(float);
  void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw_error(ErrorCode::kOutOfMemory, "cannot reserve ", bytes_, " bytes for ", shape.num_pages,
                " pages of KV cache: ", std::strerror(errno));
  }
  data_ = static_cast<float*>(data);
}

KvCache::~KvCache() { munmap(data_, bytes_); }

PagedKv KvCache::layer(int layer_idx) const {
  const int64_t slot = shape_.head_dim;
  const int64_t head = slot * shape_.page_size;
  const int64_t half = head * shape_.num_kv_heads;  // K or V of one layer
  const int64_t page = half * 2 * shape_.num_layers;
  const std::array<int64_t, 4> sizes{shape_.num_pages, shape_.num_kv_heads, shape_.page_size,
                                     shape_.head_dim};
  const std::array<int64_t, 4> strides{page, head, slot, 1};
  float* k = data_ + layer_idx * 2 * half;
  const auto view = [&](float* data) {
    return TensorView(reinterpret_cast<std::byte*>(data), DType::kFloat32, Device{}, sizes,
                      strides);
  };
  return PagedKv::from_pool(view(k), view(k + half));
}

}  // namespace heddle
