#include <functional>

#include <gtest/gtest.h>

#include "heddle/core/error.h"
#include "heddle/ops/kv_cache.h"

#include "exec_context.h"
#include "isa.h"
#include "ops/attention/test/kv_append_test_body.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using testing::PagedCache;
using testing::pick;

TEST(KvCache, NewTokensLandAtTheTailAndNowhereElse) {
  ThreadPool pool(3);
  testing::Mirror here;
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    for (int round = 0; round < testing::small_or(4, 24); ++round) {
      const ExecContext ctx = testing::context_with(pick<ThreadPool*>({nullptr, &pool}));
      testing::for_each_cache_type([&]<class From, class To>(From, To) {
        testing::check_kv_init<From, To>(round % 2 == 0, ctx, here);
      });
    }
  }
}

TEST(KvCache, RopeAndAppendInOnePassHaveTheBitsOfRopeAndInit) {
  ThreadPool pool(3);
  testing::Mirror here;
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    for (int round = 0; round < testing::small_or(2, 6); ++round) {
      const ExecContext ctx = testing::context_with(pick<ThreadPool*>({nullptr, &pool}));
      testing::for_each_cache_type([&]<class From, class To>(From, To) {
        testing::check_rope_kv_append<From, To>(round % 2 == 0, ctx, here);
      });
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
