#pragma once

// New tokens for random caches, on any device.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/kv_cache.h"

#include "ops/attention/test/paged_cases.h"
#include "testing/compare.h"

namespace heddle::testing {

inline CacheShape random_append_shape() {
  CacheShape shape;
  shape.num_kv_heads = static_cast<int>(random_int(1, 4));
  shape.head_dim = static_cast<int>(
      pick<int64_t>({1, 7, 16, 64, 80, 96, 112, 128, 192, 256, random_int(1, 300)}));
  shape.page_size = static_cast<int>(pick<int64_t>({1, 2, 16, random_int(1, 70)}));
  shape.layout = pick({PageLayout::kHeadMajor, PageLayout::kTokenMajor,
                       PageLayout::kSeparateKeysAndValues, PageLayout::kPointers});
  shape.wide_indices = pick({false, true});
  shape.scales = pick({ScalePlace::kInPages, ScalePlace::kOwnPool, ScalePlace::kWholeCache});
  shape.gap = shape.layout == PageLayout::kPointers
                  ? 0
                  : static_cast<int>(pick<int64_t>({0, 0, 8, random_int(0, 3)}));
  return shape;
}

/// A row-strided [tokens, heads, head_dim] tensor of random values.
template <class T>
struct NewRows {
  NewRows(int64_t tokens, int64_t heads, int64_t head_dim)
      : head_stride(head_dim + pick<int64_t>({0, 0, 8, random_int(0, 2)})),
        token_stride(heads * head_stride + pick<int64_t>({0, 0, 16, random_int(0, 5)})),
        extents{tokens, heads, head_dim},
        values(random_normal<T>(static_cast<size_t>(tokens * token_stride))) {}

  [[nodiscard]] TensorView view() {
    return {reinterpret_cast<std::byte*>(values.data()),
            kDType<T>,
            {},
            extents,
            std::array<int64_t, 3>{token_stride, head_stride, 1}};
  }
  [[nodiscard]] const T& at(int64_t t, int64_t h, int64_t d) const {
    return values[static_cast<size_t>(t * token_stride + h * head_stride + d)];
  }
  /// Some heads of zeros, of very small and of large values, and some values that are not finite.
  void place_special_values() {
    for (int64_t t = 0; t < extents[0]; ++t) {
      for (int64_t h = 0; h < extents[1]; ++h) {
        T* row = &values[static_cast<size_t>(t * token_stride + h * head_stride)];
        const float factor = pick({1.0f, 1.0f, 0.0f, 1e-7f, 1e-44f, 1e4f});
        for (int64_t d = 0; d < extents[2]; ++d) row[d] = from_float<T>(factor * to_float(row[d]));
        constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                        kInfinity = std::numeric_limits<float>::infinity();
        if (random_int(0, 3) != 0) continue;
        row[random_int(0, extents[2] - 1)] = from_float<T>(pick({kNaN, kInfinity, -kInfinity}));
      }
    }
  }

  int64_t head_stride, token_stride;
  std::array<int64_t, 3> extents;
  std::vector<T> values;
};

template <class From, class To>
void expect_converted(From from, const To* to) {
  To want;
  if constexpr (std::is_same_v<From, To>) {
    want = from;
  } else {
    want = from_float<To>(to_float(from));
  }
  if (std::memcmp(&want, to, sizeof(To)) != 0) {  // many elements, and EXPECT_EQ is slow
    ADD_FAILURE() << to_float(*to) << " instead of " << to_float(want);
  }
}

/// The head x [head_dim] by the words of kv_init, with a scale of its own or that of the cache.
template <class From>
void expect_quantised(const From* x, int64_t head_dim, const float* own_scale, float scale,
                      const float8_e4m3* codes) {
  if (own_scale != nullptr) {
    scale = 0.0f;
    for (int64_t d = 0; d < head_dim; ++d) {
      const float magnitude = std::abs(to_float(x[d]));
      if (magnitude > scale) scale = magnitude;
    }
    scale /= 448.0f;
    if (std::memcmp(own_scale, &scale, sizeof(float)) != 0) {
      ADD_FAILURE() << "scale " << *own_scale << " instead of " << scale;
    }
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    const float value = to_float(x[d]);
    const float8_e4m3 want = !std::isfinite(value) ? float8_e4m3{0x7f}
                             : scale == 0.0f       ? float8_e4m3{0}
                                                   : from_float<float8_e4m3>(value / scale);
    if (codes[d].bits != want.bits) {
      ADD_FAILURE() << "code " << int{codes[d].bits} << " instead of " << int{want.bits} << " for "
                    << value << " / " << scale;
    }
    if (own_scale == nullptr || std::isinf(scale) || scale < std::numeric_limits<float>::min()) {
      continue;
    }
    // The definition: 3 bits of fraction, or steps of 2^-9.
    const double error = std::abs(double{scale} * to_float(codes[d]) - double{value});
    if (!std::isnan(value) && !(error <= std::abs(value) / 15.99 + scale * 0x1p-10)) {
      ADD_FAILURE() << "error " << error << " of " << value;
    }
  }
}

/// body(From{}, To{}) for every pair of dtypes of new tokens and cache.
template <class Body>
void for_each_cache_type(const Body& body) {
  const auto each = [&]<class From>(From from) {
    body(from, float{});
    body(from, half{});
    body(from, bfloat16{});
    body(from, float8_e4m3{});
  };
  each(float{});
  each(half{});
  each(bfloat16{});
}

/// Random sequences that get random new tokens.
struct AppendLengths {
  std::vector<int64_t> kv_lens, new_lens, indptr;
  int64_t num_tokens;  // rows, of which some belong to no sequence

  AppendLengths(const CacheShape& shape, bool append) {
    for (int64_t i = pick<int64_t>({random_int(0, 6), random_int(0, 70)}); i > 0; --i) {
      kv_lens.push_back(
          pick<int64_t>({0, random_int(1, 100), shape.page_size, shape.page_size + 1}));
      new_lens.push_back(append ? 1 : pick<int64_t>({0, 0, 1, kv_lens.back(), random_int(0, 110)}));
    }
    int64_t max_gap = append ? 0 : 2;
    if (!append && num_seqs() > 0 && random_int(0, 3) == 0) {
      // As many tokens as sequences, most of which have one.
      std::fill(new_lens.begin(), new_lens.end(), 1);
      const auto any = [&] { return size_t(random_int(0, num_seqs() - 1)); };
      if (const size_t from = any(), to = any(); from != to) --new_lens[from], ++new_lens[to];
      max_gap = 0;
    }
    indptr = starts_of(new_lens, random_int(0, max_gap));
    num_tokens = indptr.back() + random_int(0, max_gap);
  }
  [[nodiscard]] int64_t num_seqs() const { return std::ssize(kv_lens); }
  [[nodiscard]] ConstTensorView starts() const {
    return host_view(indptr.data(), {std::ssize(indptr)});
  }
  /// body(sequence, position, row) for every token that is stored.
  template <class Body>
  void for_each(const Body& body) const {
    for (int64_t i = 0; i < num_seqs(); ++i) {
      const int64_t len = kv_lens[size_t(i)], n = new_lens[size_t(i)];
      for (int64_t position = std::max<int64_t>(0, len - n); position < len; ++position) {
        body(i, position, indptr[size_t(i)] + position - (len - n));
      }
    }
  }
};

/// What of a cache a test has found written.
template <class T>
struct WrittenParts {
  explicit WrittenParts(PagedCache<T>& cache)
      : cache(cache), memory(cache.memory().size()), scales(cache.scale_memory().size()) {}

  void add_row(const T* row, int64_t n) {
    const auto at = memory.begin() + (row - cache.memory().data());
    std::fill(at, at + n, true);
  }
  void add_scale(const float* scale) {
    if (cache.shape().scales == ScalePlace::kOwnPool) {
      scales[size_t(scale - cache.scale_memory().data())] = true;
    } else {
      add_row(reinterpret_cast<const T*>(scale), sizeof(float));
    }
  }
  /// The rest is as it was.
  void expect_nothing_else() const {
    for (size_t i = 0; i < memory.size(); ++i) {
      if (!memory[i] && !cache.memory().untouched(i)) FAIL() << "element " << i;
    }
    for (size_t i = 0; i < scales.size(); ++i) {
      if (!scales[i] && !cache.scale_memory().untouched(i)) FAIL() << "scale " << i;
    }
    ASSERT_TRUE(cache.memory().guards_intact() && cache.scale_memory().guards_intact());
  }

  PagedCache<T>& cache;
  std::vector<bool> memory, scales;
};

/// Head h of token t, where it lies in the cache.
template <class From, class To>
void expect_stored(const NewRows<From>& rows, bool is_value, int64_t t, int64_t h, int64_t seq,
                   int64_t position, WrittenParts<To>& written) {
  PagedCache<To>& cache = written.cache;
  const int64_t head_dim = cache.shape().head_dim;
  const To* to = is_value ? cache.value(seq, position, h) : cache.key(seq, position, h);
  written.add_row(to, head_dim);
  if constexpr (std::is_same_v<To, float8_e4m3>) {
    const bool has_own = cache.shape().scales != ScalePlace::kWholeCache;
    const float* own = has_own ? cache.scale(is_value, seq, position, h) : nullptr;
    if (has_own) written.add_scale(own);
    const float scale = is_value ? PagedCache<To>::kScaleOfValues : PagedCache<To>::kScaleOfKeys;
    expect_quantised(&rows.at(t, h, 0), head_dim, own, scale, to);
  } else {
    for (int64_t d = 0; d < head_dim; ++d) expect_converted(rows.at(t, h, d), to + d);
  }
}

/// Stores random tokens at the tail of random sequences and looks at every element of the cache.
template <class From, class To>
void check_kv_init(bool append, const ExecContext& ctx, Mirror& mirror) {
  const CacheShape shape = random_append_shape();
  const AppendLengths lengths(shape, append);
  PagedCache<To> cache(shape, lengths.kv_lens);
  NewRows<From> k(lengths.num_tokens, shape.num_kv_heads, shape.head_dim);
  NewRows<From> v(lengths.num_tokens, shape.num_kv_heads, shape.head_dim);
  if (std::is_same_v<To, float8_e4m3> && random_int(0, 1) == 0) {
    k.place_special_values();
    v.place_special_values();
  }
  const auto [kv, table] = cache.on(mirror);
  const ConstTensorView keys = mirror(ConstTensorView(k.view()));
  const ConstTensorView values = mirror(ConstTensorView(v.view()));
  if (append) {
    kv_append(ctx, kv, table, keys, values);
  } else {
    kv_init(ctx, kv, table, keys, values, mirror(lengths.starts()));
  }
  mirror.back();

  WrittenParts<To> written(cache);
  lengths.for_each([&](int64_t i, int64_t position, int64_t t) {
    for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
      expect_stored(k, false, t, h, i, position, written);
      expect_stored(v, true, t, h, i, position, written);
    }
  });
  written.expect_nothing_else();
}

/// rope_kv_append against rope and kv_init of the same device: the same bits in q and in the whole
/// cache.
template <class From, class To>
void check_rope_kv_append(bool append, const ExecContext& ctx, Mirror& mirror) {
  CacheShape shape = random_append_shape();
  shape.head_dim = static_cast<int>(
      pick<int64_t>({2, 64, 80, 96, 112, 128, 128, 192, 256, 2 * random_int(1, 128)}));
  const AppendLengths lengths(shape, append);
  PagedCache<To> cache(shape, lengths.kv_lens);
  const int64_t num_tokens = lengths.num_tokens, heads = shape.num_kv_heads;
  NewRows<From> k(num_tokens, heads, shape.head_dim), v(num_tokens, heads, shape.head_dim);
  NewRows<From> q(num_tokens, pick<int64_t>({1, 3, 32}), shape.head_dim);
  const bool has_q = random_int(0, 3) != 0, has_positions = random_int(0, 1) == 0;
  RopeParams rope{.theta = pick({1e4, 5e5}), .scale = pick({1.0, 4.0})};
  if (random_int(0, 1) == 0)
    rope.rotary_dim = 2 * static_cast<int>(random_int(1, shape.head_dim / 2));
  if (random_int(0, 3) == 0) {
    rope.llama3 = Llama3RopeScaling{.original_max_position = 100.0};
  } else if (random_int(0, 3) == 0) {
    rope.yarn = YarnRopeScaling{.factor = 4.0, .original_max_position = 100.0};
  }
  if (ctx.device.type == DeviceType::kCpu) rope.attention_factor = pick({1.0, 1.1386});
  std::vector<int64_t> positions(static_cast<size_t>(num_tokens), 0);
  lengths.for_each([&](int64_t, int64_t place, int64_t t) {
    positions[size_t(t)] = has_positions ? random_int(-5, 300000) : place;
  });
  const ConstTensorView places = host_view(positions.data(), {num_tokens});

  // The rows that are not stored are not turned: they are as they were in `q`.
  NewRows<From> turned_q = q, turned_k = k;
  for (NewRows<From>* rows : {&turned_q, &turned_k}) {
    heddle::rope(ctx, mirror(rows->view()), mirror(places), rope);
    mirror.back();
  }
  PoisonedBuffer<To>& memory = cache.memory();
  {
    const auto [kv, table] = cache.on(mirror);
    kv_init(ctx, kv, table, mirror(ConstTensorView(turned_k.view())),
            mirror(ConstTensorView(v.view())), mirror(lengths.starts()));
    mirror.back();
  }
  PoisonedBuffer<float>& scales = cache.scale_memory();
  const std::vector<To> want(memory.data(), memory.data() + memory.size());
  const std::vector<float> want_scales(scales.data(), scales.data() + scales.size());
  std::memset(memory.data(), 0xFF, memory.size() * sizeof(To));
  std::memset(scales.data(), 0xFF, scales.size() * sizeof(float));

  NewRows<From> got_q = q;
  {
    const auto [kv, table] = cache.on(mirror);
    rope_kv_append(ctx, has_q ? mirror(got_q.view()) : TensorView{}, kv, table,
                   mirror(ConstTensorView(k.view())), mirror(ConstTensorView(v.view())),
                   append ? ConstTensorView{} : mirror(lengths.starts()),
                   has_positions ? mirror(places) : ConstTensorView{}, rope);
    mirror.back();
  }
  EXPECT_TRUE(same_bits<To>({memory.data(), memory.size()}, want));
  EXPECT_TRUE(same_bits<float>({scales.data(), scales.size()}, want_scales));
  EXPECT_TRUE(memory.guards_intact() && scales.guards_intact());
  NewRows<From> want_q = q;
  lengths.for_each([&](int64_t, int64_t, int64_t t) {
    if (!has_q) return;
    const auto row = [&](NewRows<From>& rows) {
      return rows.values.begin() + t * rows.token_stride;
    };
    std::copy_n(row(turned_q), q.extents[1] * q.head_stride, row(want_q));
  });
  EXPECT_TRUE(same_bits<From>(got_q.values, want_q.values));
}

}  // namespace heddle::testing
