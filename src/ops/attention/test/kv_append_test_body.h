#pragma once

// New tokens for random caches, on any device.

#include <algorithm>
#include <array>
#include <cstring>
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
  [[nodiscard]] T at(int64_t t, int64_t h, int64_t d) const {
    return values[static_cast<size_t>(t * token_stride + h * head_stride + d)];
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

/// body(From{}, To{}) for every pair of dtypes of new tokens and cache.
template <class Body>
void for_each_cache_type(const Body& body) {
  const auto each = [&]<class From>(From from) {
    body(from, float{});
    body(from, half{});
    body(from, bfloat16{});
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

/// Stores random tokens at the tail of random sequences and looks at every element of the cache.
template <class From, class To>
void check_kv_init(bool append, const ExecContext& ctx, Mirror& mirror) {
  const CacheShape shape = random_append_shape();
  const AppendLengths lengths(shape, append);
  PagedCache<To> cache(shape, lengths.kv_lens);
  NewRows<From> k(lengths.num_tokens, shape.num_kv_heads, shape.head_dim);
  NewRows<From> v(lengths.num_tokens, shape.num_kv_heads, shape.head_dim);
  const auto [kv, table] = cache.on(mirror);
  const ConstTensorView keys = mirror(ConstTensorView(k.view()));
  const ConstTensorView values = mirror(ConstTensorView(v.view()));
  if (append) {
    kv_append(ctx, kv, table, keys, values);
  } else {
    kv_init(ctx, kv, table, keys, values, mirror(lengths.starts()));
  }
  mirror.back();

  std::vector<bool> written(cache.memory().size(), false);
  lengths.for_each([&](int64_t i, int64_t position, int64_t t) {
    for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
      const To *key = cache.key(i, position, h), *value = cache.value(i, position, h);
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        expect_converted(k.at(t, h, d), key + d);
        expect_converted(v.at(t, h, d), value + d);
        written[size_t(key + d - cache.memory().data())] = true;
        written[size_t(value + d - cache.memory().data())] = true;
      }
    }
  });
  for (size_t i = 0; i < written.size(); ++i) {
    if (!written[i] && !cache.memory().untouched(i)) FAIL() << "element " << i;
  }
  ASSERT_TRUE(cache.memory().guards_intact());
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
  const std::vector<To> want(memory.data(), memory.data() + memory.size());
  std::memset(memory.data(), 0xFF, memory.size() * sizeof(To));

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
  EXPECT_TRUE(memory.guards_intact());
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
