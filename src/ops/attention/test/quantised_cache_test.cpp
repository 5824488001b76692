// Caches of f8e4m3: what is read of every code, where scales lie, and what is wrong with them.
#include <array>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "isa.h"
#include "ops/attention/test/attention_cases.h"
#include "testing/expect_error.h"

namespace heddle {
namespace {

using testing::expect_invalid;

/// Two pages of 3 tokens, 2 heads of 4, and scales in tensors of their own.
struct Pool {
  std::vector<float8_e4m3> k = std::vector<float8_e4m3>(48), v = std::vector<float8_e4m3>(48);
  std::vector<float> k_scales = std::vector<float>(12), v_scales = std::vector<float>(12);

  [[nodiscard]] TensorView keys() { return host_view(k.data(), {2, 2, 3, 4}); }
  [[nodiscard]] TensorView values() { return host_view(v.data(), {2, 2, 3, 4}); }
  [[nodiscard]] TensorView key_scales() { return host_view(k_scales.data(), {2, 2, 3}); }
  [[nodiscard]] TensorView value_scales() { return host_view(v_scales.data(), {2, 2, 3}); }
  [[nodiscard]] PagedKv cache() {
    return PagedKv::from_pool(keys(), values(), key_scales(), value_scales());
  }
};

// One key whose code is 0 has weight 1, so that a row of attention is its value.
TEST(QuantisedCache, EveryCodeIsReadExactly) {
  const testing::HeadShape heads{1, 1, 256};
  testing::Sequence<float, float8_e4m3> one{
      1, 1, std::vector<float>(256), std::vector<float8_e4m3>(256), std::vector<float8_e4m3>(256)};
  for (int i = 0; i < 256; ++i) one.v[size_t(i)].bits = static_cast<uint8_t>(i);
  const float scale = testing::scale_for(one.v.data(), 256);
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    const auto got = testing::attend<float, float8_e4m3>(heads, {one}, {}, {});
    for (size_t i = 0; i < 256; ++i) {
      const float want = scale * to_float(one.v[i]);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got.o[i])) << i;
      } else {
        EXPECT_EQ(got.o[i], want) << i;
      }
    }
  }
}

// 2 layers of 2 heads of 3 tokens of 5: 120 codes, then from byte 128 on 24 scales.
TEST(QuantisedCache, PagesWithAddressesEndWithTheirScales) {
  EXPECT_EQ(PagedKv::page_bytes(DType::kFloat8E4M3, 2, 2, 3, 5), 128 + 24 * 4);
  EXPECT_EQ(PagedKv::page_bytes(DType::kBFloat16, 2, 2, 3, 5), 240);
  const PagedKv cache = PagedKv::from_pointers(DType::kFloat8E4M3, {}, 2, 1, 2, 3, 5);
  EXPECT_EQ(cache.k_offset, 60);
  EXPECT_EQ(cache.v_offset, 90);
  EXPECT_TRUE(cache.has_token_scales);
  EXPECT_EQ(cache.k_scale_offset, 32 + 12);
  EXPECT_EQ(cache.v_scale_offset, 32 + 18);
  EXPECT_EQ(cache.scale_head_stride, 3);
  EXPECT_EQ(cache.scale_slot_stride, 1);
}

TEST(QuantisedCache, PoolsNameWhatIsWrongWithTheirScales) {
  Pool p;
  EXPECT_NO_THROW((void)p.cache());
  expect_invalid({"k_pages is f8e4m3, whose scales are missing"},
                 [&] { (void)PagedKv::from_pool(p.keys(), p.values()); });
  expect_invalid({"k_scales.size(2) is 2, expected page_size = 3"}, [&] {
    (void)PagedKv::from_pool(p.keys(), p.values(), host_view(p.k_scales.data(), {2, 2, 2}),
                             p.value_scales());
  });
  expect_invalid({"v_scales.stride(0) is 7, expected k_scales' = 6"}, [&] {
    const std::array<int64_t, 3> shape{2, 2, 3}, strides{7, 3, 1};
    (void)PagedKv::from_pool(p.keys(), p.values(), p.key_scales(),
                             {p.value_scales().raw(), DType::kFloat32, {}, shape, strides});
  });
  const Device gpu{DeviceType::kCuda, 0};
  const auto moved = [](const TensorView& t, int64_t bytes, Device device) {
    return TensorView(t.raw() + bytes, t.dtype(), device, t.shape(), t.strides());
  };
  expect_invalid({"k_scales is on cuda:0, k_pages on cpu"}, [&] {
    (void)PagedKv::from_pool(p.keys(), p.values(), moved(p.key_scales(), 0, gpu),
                             moved(p.value_scales(), 0, gpu));
  });
  expect_invalid({"v_scales is on cuda:0, k_scales on cpu"}, [&] {
    (void)PagedKv::from_pool(p.keys(), p.values(), p.key_scales(), moved(p.value_scales(), 0, gpu));
  });
  expect_invalid({"v_scales lies", "expected a multiple of 4"}, [&] {
    (void)PagedKv::from_pool(p.keys(), p.values(), p.key_scales(), moved(p.value_scales(), 2, {}));
  });
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    expect_invalid({"v_scale", "expected above 0, up to 1e+36"},
                   [&] { (void)PagedKv::from_pool(p.keys(), p.values(), 1.0f, scale); });
  }
  std::vector<half> wide(48);
  const TensorView other = host_view(wide.data(), {2, 2, 3, 4});
  expect_invalid({"k_pages is f16, but scales are given, which belong to f8e4m3"},
                 [&] { (void)PagedKv::from_pool(other, other, 1.0f, 1.0f); });
}

TEST(QuantisedCache, CallsNameWhatIsWrongWithTheirScales) {
  Pool p;
  const std::vector<float> rows(8);
  const std::vector<int32_t> indptr{0, 1}, last{1};
  std::vector<int32_t> pages{1};
  const auto append = [&](const PagedKv& cache, const ConstTensorView& ids) {
    const ConstTensorView row = host_view(rows.data(), {1, 2, 4});
    kv_append({}, cache, {host_view(indptr.data(), {2}), ids, host_view(last.data(), {1})}, row,
              row);
  };
  const auto expect_wrong = [&](const char* message, const PagedKv& cache) {
    expect_invalid({message}, [&] { append(cache, host_view(pages.data(), {1})); });
  };
  PagedKv cache = p.cache();
  EXPECT_NO_THROW(append(cache, host_view(pages.data(), {1})));
  cache.scale_pool = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(cache.scale_pool) + 1);
  expect_wrong("scales begin at address", cache);
  cache = p.cache();
  cache.scale_slot_stride = 0;
  expect_wrong("cache has scales with strides of 0, expected one for each token and head", cache);
  cache = p.cache();
  cache.page_size = 0;
  expect_wrong("page_size 0, head_dim 4, expected at least 1 each", cache);
  cache = p.cache();
  cache.scale_pool = nullptr;
  cache.page_stride = 23;
  expect_wrong("are 23 bytes apart, expected multiples of 4", cache);
  cache = p.cache();
  cache.has_token_scales = false;
  cache.k_scale = 0.0f;
  expect_wrong("cache has k_scale 0 and v_scale 1, expected above 0, up to 1e+36", cache);
  std::vector<float> wide(48);
  const TensorView other = host_view(wide.data(), {2, 2, 3, 4});
  cache = PagedKv::from_pool(other, other);
  cache.has_token_scales = true;
  expect_wrong("cache is f32, but has scales, which belong to f8e4m3", cache);

  alignas(16) std::array<std::byte, 256> page{};
  cache = PagedKv::from_pointers(DType::kFloat8E4M3, {}, 1, 0, 2, 3, 4);
  std::vector<int64_t> address{reinterpret_cast<int64_t>(page.data())};
  EXPECT_NO_THROW(append(cache, host_view(address.data(), {1})));
  address[0] += 2;
  expect_invalid({"pages[0] is ", "expected a multiple of 4 where scales lie in the page"},
                 [&] { append(cache, host_view(address.data(), {1})); });
  cache.scale_pool = p.k_scales.data();
  expect_invalid({"cache has a scale_pool, but its pages have addresses"},
                 [&] { append(cache, host_view(address.data(), {1})); });
}

}  // namespace
}  // namespace heddle
