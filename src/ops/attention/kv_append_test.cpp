#include <cstring>
#include <functional>

#include <gtest/gtest.h>

#include "heddle/core/error.h"
#include "heddle/ops/kv_cache.h"

#include "compare.h"
#include "exec_context.h"
#include "isa.h"
#include "paged_cases.h"

namespace heddle {
namespace {

using testing::CacheShape;
using testing::PagedCache;
using testing::PageLayout;
using testing::pick;
using testing::random_int;

CacheShape random_shape() {
  CacheShape shape;
  shape.num_kv_heads = static_cast<int>(random_int(1, 4));
  shape.head_dim = static_cast<int>(pick<int64_t>({1, 7, 16, 64, 80, random_int(1, 300)}));
  shape.page_size = static_cast<int>(pick<int64_t>({1, 2, 16, random_int(1, 70)}));
  shape.layout = pick({PageLayout::kHeadMajor, PageLayout::kTokenMajor,
                       PageLayout::kSeparateKeysAndValues, PageLayout::kPointers});
  shape.wide_indices = pick({false, true});
  shape.gap = shape.layout == PageLayout::kPointers ? 0 : static_cast<int>(random_int(0, 3));
  return shape;
}

/// A row-strided [tokens, heads, head_dim] tensor of random values.
template <class T>
struct Tokens {
  Tokens(int64_t tokens, const CacheShape& shape)
      : head_stride(shape.head_dim + random_int(0, 2)),
        token_stride(shape.num_kv_heads * head_stride + random_int(0, 5)),
        extents{tokens, shape.num_kv_heads, shape.head_dim},
        values(testing::random_normal<T>(static_cast<size_t>(tokens * token_stride))) {}

  [[nodiscard]] ConstTensorView view() const {
    return {reinterpret_cast<const std::byte*>(values.data()),
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
  EXPECT_EQ(std::memcmp(&want, to, sizeof(To)), 0);
}

/// Stores random tokens at the tail of random sequences and looks at every element of the cache.
template <class From, class To>
void check_kv_init(bool append, ThreadPool* threads) {
  const CacheShape shape = random_shape();
  std::vector<int64_t> kv_lens, new_lens;
  for (int64_t i = random_int(0, 6); i > 0; --i) {
    kv_lens.push_back(pick<int64_t>({0, random_int(1, 100), shape.page_size, shape.page_size + 1}));
    new_lens.push_back(append ? 1 : pick<int64_t>({0, 1, kv_lens.back(), random_int(0, 110)}));
  }
  const std::vector<int64_t> indptr = testing::starts_of(new_lens, append ? 0 : random_int(0, 2));
  const auto num_seqs = static_cast<int64_t>(kv_lens.size());
  const int64_t num_tokens = indptr.back() + (append ? 0 : random_int(0, 2));
  PagedCache<To> cache(shape, kv_lens);
  const Tokens<From> k(num_tokens, shape), v(num_tokens, shape);
  if (append) {
    kv_append(testing::context_with(threads), cache.kv(), cache.table(), k.view(), v.view());
  } else {
    kv_init(testing::context_with(threads), cache.kv(), cache.table(), k.view(), v.view(),
            host_view(indptr.data(), {num_seqs + 1}));
  }

  std::vector<bool> written(cache.memory().size(), false);
  for (int64_t i = 0; i < num_seqs; ++i) {
    const int64_t len = kv_lens[size_t(i)], n = new_lens[size_t(i)];
    for (int64_t position = std::max<int64_t>(0, len - n); position < len; ++position) {
      const int64_t t = indptr[size_t(i)] + position - (len - n);
      for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          To* key = cache.key(i, position, h) + d;
          To* value = cache.value(i, position, h) + d;
          expect_converted(k.at(t, h, d), key);
          expect_converted(v.at(t, h, d), value);
          written[size_t(key - cache.memory().data())] = true;
          written[size_t(value - cache.memory().data())] = true;
        }
      }
    }
  }
  for (size_t i = 0; i < written.size(); ++i) {
    EXPECT_TRUE(written[i] || cache.memory().untouched(i)) << i;
  }
  EXPECT_TRUE(cache.memory().guards_intact());
}

template <class From>
void check_all_cache_types(bool append, ThreadPool* threads) {
  check_kv_init<From, float>(append, threads);
  check_kv_init<From, half>(append, threads);
  check_kv_init<From, bfloat16>(append, threads);
}

TEST(KvCache, NewTokensLandAtTheTailAndNowhereElse) {
  ThreadPool pool(3);
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    for (int round = 0; round < 24; ++round) {
      ThreadPool* threads = pick<ThreadPool*>({nullptr, &pool});
      check_all_cache_types<float>(round % 2 == 0, threads);
      check_all_cache_types<half>(round % 2 == 0, threads);
      check_all_cache_types<bfloat16>(round % 2 == 0, threads);
    }
  }
}

// Page size 16, lengths around one and two pages: where the last token goes, counted by hand.
TEST(KvCache, LastPageLenIsACount) {
  const std::vector<int64_t> kv_lens{15, 16, 17, 31, 32, 33};
  PagedCache<float> cache({.num_kv_heads = 1, .head_dim = 1, .page_size = 16}, kv_lens);
  const PageTable table = cache.table();
  const int64_t last_page_len[] = {15, 16, 1, 15, 16, 1}, num_pages[] = {1, 1, 2, 2, 2, 3};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(table.last_page_len.data<int64_t>()[i], last_page_len[i]);
    const int32_t* indptr = table.page_indptr.data<int32_t>();
    EXPECT_EQ(indptr[i + 1] - indptr[i], num_pages[i]);
  }
  const std::vector<float> k{1, 2, 3, 4, 5, 6}, v{-1, -2, -3, -4, -5, -6};
  kv_append({}, cache.kv(), table, host_view(k.data(), {6, 1, 1}), host_view(v.data(), {6, 1, 1}));
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t last = kv_lens[size_t(i)] - 1;
    EXPECT_EQ(*cache.key(i, last, 0), static_cast<float>(i + 1));
    EXPECT_EQ(*cache.value(i, last, 0), -static_cast<float>(i + 1));
  }
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(KvCache, NamesWhatIsWrong) {
  PagedCache<float> cache({.num_kv_heads = 2, .head_dim = 4, .page_size = 8}, {9, 3});
  const std::vector<float> k(2 * 2 * 5);
  const ConstTensorView good = host_view(k.data(), {2, 2, 4});
  const PagedKv kv = cache.kv();
  PageTable table = cache.table();
  const ExecContext ctx;
  EXPECT_EQ(message([&] {
              kv_append(ctx, kv, table, host_view(k.data(), {2, 2, 5}), good);
            }),
            "k.size(2) is 5, expected head_dim = 4");
  EXPECT_EQ(message([&] {
              kv_append(ctx, kv, table, good, host_view(k.data(), {1, 2, 4}));
            }),
            "v.size(0) is 1, expected num_seqs = 2");
  const std::vector<int32_t> indptr{0, 2, 1}, last_page_len{9, 3};
  EXPECT_EQ(message([&] { kv_init(ctx, kv, table, good, good, host_view(indptr.data(), {3})); }),
            "seq_indptr[2] is 1, expected at least seq_indptr[1] = 2 and at most num_tokens = 2");
  table.last_page_len = host_view(last_page_len.data(), {2});
  EXPECT_EQ(message([&] { kv_append(ctx, kv, table, good, good); }),
            "last_page_len[0] is 9, expected 1 to page_size = 8");
  table = cache.table();
  table.pages = table.pages.narrow(0, 0, 2);
  EXPECT_EQ(message([&] { kv_append(ctx, kv, table, good, good); }),
            "page_indptr[2] is 3, expected at least page_indptr[1] = 2 and at most num pages = 2");
  PagedKv by_pointer = kv;
  by_pointer.pool = nullptr;
  EXPECT_EQ(message([&] { kv_append(ctx, by_pointer, cache.table(), good, good); }),
            "pages (addresses) is i32, supported: i64");
  EXPECT_EQ(message([] { (void)PagedKv::from_pointers(DType::kFloat32, {}, 3, 3, 1, 1, 1); }),
            "layer_idx is 3, expected 0 to num_layers - 1 = 2");
}

}  // namespace
}  // namespace heddle
