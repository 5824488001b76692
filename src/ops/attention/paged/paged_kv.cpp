#include "heddle/core/check.h"
#include "heddle/ops/kv_cache.h"

namespace heddle {

PagedKv PagedKv::from_pool(TensorView k_pages, TensorView v_pages) {
  Dim pages("num_pages"), heads("num_kv_heads"), slots("page_size"), head_dim("head_dim");
  check_shape("k_pages", k_pages, {&pages, &heads, &slots, &head_dim});
  check_shape("v_pages", v_pages, {&pages, &heads, &slots, &head_dim});
  check_dtype("k_pages", k_pages, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_dtype("v_pages", v_pages, {k_pages.dtype()});
  HEDDLE_CHECK(k_pages.device() == v_pages.device(), "v_pages is on ", v_pages.device(),
               ", k_pages on ", k_pages.device());
  check_unit_stride("k_pages", k_pages);
  for (int axis = 0; axis < 4; ++axis) {
    HEDDLE_CHECK(k_pages.stride(axis) == v_pages.stride(axis), "v_pages.stride(", axis, ") is ",
                 v_pages.stride(axis), ", expected k_pages' = ", k_pages.stride(axis));
  }
  const auto element = static_cast<int64_t>(size_of(k_pages.dtype()));
  // As integers: they may be two allocations.
  const int64_t distance =
      reinterpret_cast<intptr_t>(v_pages.raw()) - reinterpret_cast<intptr_t>(k_pages.raw());
  HEDDLE_CHECK(distance % element == 0, "v_pages lies ", distance,
               " bytes from k_pages, expected a multiple of ", element);
  PagedKv cache;
  cache.dtype = k_pages.dtype();
  cache.device = k_pages.device();
  cache.pool = k_pages.raw();
  cache.num_pages = pages.value();
  cache.page_stride = k_pages.stride(0);
  cache.v_offset = distance / element;
  cache.head_stride = k_pages.stride(1);
  cache.slot_stride = k_pages.stride(2);
  cache.num_kv_heads = static_cast<int>(heads.value());
  cache.page_size = static_cast<int>(slots.value());
  cache.head_dim = static_cast<int>(head_dim.value());
  return cache;
}

PagedKv PagedKv::from_pointers(DType dtype, Device device, int num_layers, int layer_idx,
                               int num_kv_heads, int page_size, int head_dim) {
  HEDDLE_CHECK(0 <= layer_idx && layer_idx < num_layers, "layer_idx is ", layer_idx,
               ", expected 0 to num_layers - 1 = ", num_layers - 1);
  const int64_t keys_of_layer = int64_t{num_kv_heads} * page_size * head_dim;
  PagedKv cache;
  cache.dtype = dtype;
  cache.device = device;
  cache.k_offset = 2 * layer_idx * keys_of_layer;
  cache.v_offset = cache.k_offset + keys_of_layer;
  cache.head_stride = int64_t{page_size} * head_dim;
  cache.slot_stride = head_dim;
  cache.num_kv_heads = num_kv_heads;
  cache.page_size = page_size;
  cache.head_dim = head_dim;
  return cache;
}

}  // namespace heddle
