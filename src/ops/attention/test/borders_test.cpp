// Rows that see no key, sequences without pages, and more sequences than fit an axis of a CUDA
// grid.
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/attention.h"

#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::PoisonedBuffer;

constexpr float kNone = -std::numeric_limits<float>::infinity();

/// A pool of `num_pages` pages of one token, one head of dimension 2; a sequence has as many pages
/// as `lengths` says.
struct Cache {
  int64_t num_pages, num_seqs;
  std::vector<float> k, v;
  std::vector<int64_t> page_indptr{0}, pages;
  std::vector<int32_t> last_page_len;

  explicit Cache(const std::vector<int64_t>& lengths)
      : num_pages(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
        num_seqs(std::ssize(lengths)),
        k(testing::random_normal<float>(size_t(num_pages * 2))),
        v(testing::random_normal<float>(size_t(num_pages * 2))),
        pages(size_t(num_pages)),
        last_page_len(lengths.size(), 1) {
    for (const int64_t length : lengths) page_indptr.push_back(page_indptr.back() + length);
    std::iota(pages.begin(), pages.end(), int64_t{0});
  }
  PagedKv kv() {
    return PagedKv::from_pool(host_view(k.data(), {num_pages, 1, 1, 2}),
                              host_view(v.data(), {num_pages, 1, 1, 2}));
  }
  [[nodiscard]] PageTable table() const {
    return {host_view(page_indptr.data(), {num_seqs + 1}), host_view(pages.data(), {num_pages}),
            host_view(last_page_len.data(), {num_seqs})};
  }
};

TEST(AttentionBorders, RowsThatSeeNoKeyAreZero) {
  // Three queries over one key, of which the causal mask leaves the last query a key; two queries
  // without any.
  Cache cache({1, 0});
  const std::vector<float> q = testing::random_normal<float>(10);
  const std::vector<int32_t> q_indptr{0, 3, 5};
  PoisonedBuffer<float> o(10), lse(5);
  batch_prefill({}, o.view({5, 1, 2}), lse.view({5, 1}), host_view(q.data(), {5, 1, 2}),
                host_view(q_indptr.data(), {3}), cache.kv(), cache.table());
  for (const size_t row : {0, 1, 3, 4}) {
    EXPECT_EQ(o[2 * row], 0.0f);
    EXPECT_EQ(o[2 * row + 1], 0.0f);
    EXPECT_EQ(lse[row], kNone);
  }
  EXPECT_EQ(o[4], cache.v[0]);
  EXPECT_EQ(o[5], cache.v[1]);
}

TEST(AttentionBorders, SequencesWithoutPagesAreSkipped) {
  Cache cache({0, 1, 0});
  const std::vector<float> before = cache.k, rows = testing::random_normal<float>(6);
  const ConstTensorView three = host_view(rows.data(), {3, 1, 2});
  PoisonedBuffer<float> o(6);
  kv_append({}, cache.kv(), cache.table(), three, three);
  EXPECT_EQ(cache.k, (std::vector<float>{rows[2], rows[3]}));
  batch_decode({}, o.view({3, 1, 2}), {}, three, cache.kv(), cache.table());
  EXPECT_EQ((std::vector<float>{o.data(), o.data() + 6}),
            (std::vector<float>{0, 0, rows[2], rows[3], 0, 0}));

  cache.k = before;
  const std::vector<int64_t> starts{0, 1, 2, 3};
  kv_init({}, cache.kv(), cache.table(), three, three, host_view(starts.data(), {4}));
  EXPECT_EQ(cache.k, (std::vector<float>{rows[2], rows[3]}));
}

TEST(AttentionBorders, TakesAnyNumberOfSequences) {
  const int64_t n = 70000;
  Cache cache(std::vector<int64_t>(size_t(n), 1));
  const std::vector<float> rows = testing::random_normal<float>(size_t(n * 2));
  const ConstTensorView q = host_view(rows.data(), {n, 1, 2});
  std::vector<int32_t> starts(size_t(n + 1));
  std::iota(starts.begin(), starts.end(), 0);
  ThreadPool pool(2);
  ExecContext ctx;
  ctx.threads = &pool;
  PoisonedBuffer<float> o(size_t(n * 2));
  const TensorView out = o.view({n, 1, 2});
  kv_append(ctx, cache.kv(), cache.table(), q, q);
  batch_decode(ctx, out, {}, q, cache.kv(), cache.table());
  EXPECT_EQ((std::vector<float>{o.data(), o.data() + n * 2}), rows);  // each its only value
  batch_prefill(ctx, out, {}, q, host_view(starts.data(), {n + 1}), cache.kv(), cache.table());
  EXPECT_EQ((std::vector<float>{o.data(), o.data() + n * 2}), rows);
  EXPECT_TRUE(o.guards_intact());
}

}  // namespace
}  // namespace heddle
