// New tokens and merged states on a GPU: the bodies of the CPU's tests, replays with other lengths,
// and offsets beyond 32 bits.
#include <algorithm>
#include <numeric>
#include <type_traits>
#include <vector>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "device_buffer.h"
#include "device_mirror.h"
#include "expect_error.h"
#include "graph_timing_cuda.h"
#include "late_copy.h"
#include "ops/attention/test/kv_append_test_body.h"
#include "ops/attention/test/merge_states_test_body.h"
#include "scoped_validation.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

using Guards = DeviceMirror::Guards;

class KvCacheCuda : public CudaTest {
 protected:
  /// Allocations take most of a round, so few have them.
  DeviceMirror& any_mirror() {
    return random_int(0, small_or(1, 7)) == 0 ? flush_ : between_guards_;
  }

 private:
  DeviceMirror between_guards_, flush_{Guards::kFlush};
};

TEST_F(KvCacheCuda, NewTokensLandAtTheTailAndNowhereElse) {
  for (int round = 0; round < small_or(2, 20); ++round) {
    for_each_cache_type([&]<class From, class To>(From, To) {
      if (!HasFailure()) {
        check_kv_init<From, To>(round % 2 == 0, cuda_context(), any_mirror());
      }
    });
  }
}

TEST_F(KvCacheCuda, RopeAndAppendInOneLaunchHaveTheBitsOfRopeAndInit) {
  for (int round = 0; round < small_or(2, 14); ++round) {
    for_each_cache_type([&]<class From, class To>(From, To) {
      if (!HasFailure()) {
        check_rope_kv_append<From, To>(round % 2 == 0, cuda_context(), any_mirror());
      }
    });
  }
}

/// A pool of 8 pages of 4 tokens, one head of 64, and tables for up to 3 sequences that a graph
/// reads.
struct ReplayedCache {
  static constexpr int64_t kPages = 8, kSlots = 4, kDim = 64, kSeqs = 3, kTokens = 6;
  DeviceBuffer<half> pages{size_t(2 * kPages * kSlots * kDim)};
  DeviceBuffer<half> k, v;
  DeviceBuffer<int32_t> page_indptr{kSeqs + 1}, ids{kPages}, last_page_len{kSeqs};
  DeviceBuffer<int64_t> seq_indptr{kSeqs + 1};
  std::vector<half> host_k, host_v;

  ReplayedCache()
      : k(random_normal<half>(kTokens * kDim)),
        v(random_normal<half>(kTokens * kDim)),
        host_k(k.download()),
        host_v(v.download()) {}
  void upload(const std::vector<int32_t>& indptr, const std::vector<int32_t>& of_sequences,
              const std::vector<int32_t>& last, const std::vector<int64_t>& starts) {
    pages.poison();
    page_indptr.upload(indptr);
    ids.upload(of_sequences);
    last_page_len.upload(last);
    seq_indptr.upload(starts);
  }
  void run(const ExecContext& ctx) const {
    const TensorView all = pages.view({2 * kPages, 1, kSlots, kDim});
    const PagedKv cache =
        PagedKv::from_pool(all.narrow(0, 0, kPages), all.narrow(0, kPages, kPages));
    const PageTable table{page_indptr.view({kSeqs + 1}), ids.view({kPages}),
                          last_page_len.view({kSeqs})};
    kv_init(ctx, cache, table, k.view({kTokens, 1, kDim}), v.view({kTokens, 1, kDim}),
            seq_indptr.view({kSeqs + 1}));
  }
  /// That token t lies in a slot of a page, and how many slots hold something.
  void expect_token(int64_t t, int64_t page, int64_t slot) const {
    for (const bool is_value : {false, true}) {
      const auto at = size_t(((is_value ? kPages : 0) + page) * kSlots + slot) * kDim;
      const auto* want = (is_value ? host_v : host_k).data() + t * kDim;
      EXPECT_TRUE(same_bits<half>(pages.download(at, kDim), {want, size_t(kDim)}))
          << "token " << t << ", page " << page;
    }
  }
  void expect_number_of_tokens(int64_t number) const {
    int64_t slots = 0;
    for (size_t i = 0; i < pages.size(); i += kDim) slots += pages.untouched(i, kDim) ? 0 : 1;
    EXPECT_EQ(slots, 2 * number);
    EXPECT_TRUE(pages.guards_intact());
  }
};

TEST_F(KvCacheCuda, AGraphReplaysWithOtherLengthsAndTables) {
  const DeviceStream stream;
  const ExecContext ctx = cuda_context(stream.get());
  ReplayedCache cache;
  // One token each: after 4 of pages 5 and 2, after none of page 7, and a sequence without pages.
  cache.upload({0, 2, 3, 3}, {5, 2, 7, -1, -1, -1, -1, -1}, {1, 1, -9}, {0, 1, 2, 3});
  const RecordedGraph graph(stream.get(), [&] { cache.run(ctx); });
  graph.launch(stream.get());
  stream.wait();
  cache.expect_token(0, 2, 0);
  cache.expect_token(1, 7, 0);
  cache.expect_number_of_tokens(2);

  // Three tokens that pass the end of a page, none, and two; the last row belongs to no sequence.
  cache.upload({0, 2, 4, 5}, {0, 1, 3, 4, 6, -1, -1, -1}, {2, 4, 3}, {0, 3, 3, 5});
  graph.launch(stream.get());
  stream.wait();
  cache.expect_token(0, 0, 3);
  cache.expect_token(1, 1, 0);
  cache.expect_token(2, 1, 1);
  cache.expect_token(3, 6, 1);
  cache.expect_token(4, 6, 2);
  cache.expect_number_of_tokens(5);
}

/// One new token of each of kSeqs sequences: rows that all of them share, and tables of their own.
/// To: dtype of the cache.
template <class To>
class RopedTokens {
 public:
  static constexpr int64_t kPages = 16, kSlots = 4, kKvHeads = 2, kQHeads = 6, kDim = 64, kSeqs = 3;
  struct Rows {
    std::vector<half> q = random_normal<half>(kSeqs * kQHeads * kDim);
    std::vector<half> k = random_normal<half>(kSeqs * kKvHeads * kDim);
    std::vector<half> v = random_normal<half>(kSeqs * kKvHeads * kDim);
  };

  explicit RopedTokens(const Rows& rows) : q(rows.q), k_(rows.k), v_(rows.v) {}

  /// Draws lengths, places and positions.
  void draw() {
    std::vector<int32_t> starts{0}, last;
    for (int64_t i = 0; i < kSeqs; ++i) {
      starts.push_back(starts.back() + static_cast<int32_t>(random_int(i == 1 ? 0 : 1, 5)));
      last.push_back(static_cast<int32_t>(random_int(1, kSlots)));
    }
    page_indptr_.upload(starts);
    last_page_len_.upload(last);
    draw_places();
  }
  void draw_places() {
    std::vector<int32_t> ids(kPages);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), rng());
    ids_.upload(ids);
    std::vector<int64_t> positions(kSeqs);
    for (int64_t& position : positions) position = random_int(0, 100000);
    positions_.upload(positions);
  }
  void take_lengths_of(const RopedTokens& other) {
    page_indptr_.upload(other.page_indptr_.download());
    last_page_len_.upload(other.last_page_len_.download());
    draw_places();
  }
  /// Copies that make the tables those of `other`.
  [[nodiscard]] std::vector<LateCopy> copies_of(const RopedTokens& other) const {
    const auto copy = [](const auto& to, const auto& from) {
      return LateCopy{to.data(), from.data(), to.size() * sizeof(*to.data())};
    };
    return {copy(page_indptr_, other.page_indptr_), copy(ids_, other.ids_),
            copy(last_page_len_, other.last_page_len_), copy(positions_, other.positions_)};
  }
  void run(const ExecContext& ctx, bool has_positions) const {
    rope_kv_append(
        ctx, q.view({kSeqs, kQHeads, kDim}), cache(),
        {page_indptr_.view({kSeqs + 1}), ids_.view({kPages}), last_page_len_.view({kSeqs})},
        k_.view({kSeqs, kKvHeads, kDim}), v_.view({kSeqs, kKvHeads, kDim}), {},
        has_positions ? positions_.view({kSeqs}) : TensorView{}, RopeParams{});
  }

  DeviceBuffer<To> pages{size_t(2 * kPages * kKvHeads * kSlots * kDim)};
  DeviceBuffer<float> scales{size_t(2 * kPages * kKvHeads * kSlots)};  // of f8e4m3
  DeviceBuffer<half> q;

 private:
  [[nodiscard]] PagedKv cache() const {
    const TensorView all = pages.view({2 * kPages, kKvHeads, kSlots, kDim});
    const TensorView k = all.narrow(0, 0, kPages), v = all.narrow(0, kPages, kPages);
    if constexpr (std::is_same_v<To, float8_e4m3>) {
      const TensorView own = scales.view({2 * kPages, kKvHeads, kSlots});
      return PagedKv::from_pool(k, v, own.narrow(0, 0, kPages), own.narrow(0, kPages, kPages));
    } else {
      return PagedKv::from_pool(k, v);
    }
  }

  DeviceBuffer<half> k_, v_;
  DeviceBuffer<int32_t> page_indptr_{kSeqs + 1}, ids_{kPages}, last_page_len_{kSeqs};
  DeviceBuffer<int64_t> positions_{kSeqs};
};

template <class To>
void expect_late_tables_are_seen(const DeviceStream& stream, const ExecContext& ctx) {
  for (int round = 0; round < small_or(6, 24); ++round) {
    const typename RopedTokens<To>::Rows rows;
    RopedTokens<To> tokens(rows), late(rows);
    const bool has_positions = round % 2 == 0;
    late.draw();
    late.run(ctx, has_positions);
    if (round % 3 == 0) tokens.draw();
    if (round % 3 == 1) tokens.take_lengths_of(late);  // else the tables are poisoned
    stream.wait();
    copy_late(tokens.copies_of(late), stream.get());
    tokens.run(ctx, has_positions);
    stream.wait();
    ASSERT_TRUE(same_bits<half>(tokens.q.download(), late.q.download())) << "round " << round;
    ASSERT_TRUE(same_bits<To>(tokens.pages.download(), late.pages.download())) << "round " << round;
    ASSERT_TRUE(same_bits<float>(tokens.scales.download(), late.scales.download()))
        << "round " << round;
    ASSERT_TRUE(tokens.pages.guards_intact() && tokens.scales.guards_intact());
  }
}

/// Where chips can, rope_kv_append starts before the previous kernel has ended, and looks at
/// what lies in the tables then.
TEST_F(KvCacheCuda, RopeAndAppendSeesWhatTheKernelInFrontWritesLast) {
  const DeviceStream stream;
  const ExecContext ctx = cuda_context(stream.get());
  expect_late_tables_are_seen<half>(stream, ctx);
  expect_late_tables_are_seen<float8_e4m3>(stream, ctx);
}

TEST_F(KvCacheCuda, PagesMayLieGigabytesApart) {
  const int64_t stride =
      small_or<int64_t>(int64_t{1} << 12, (int64_t{1} << 30) + 64);  // elements of 2 bytes
  const DeviceBuffer<half> memory(size_t(stride + 128));
  const auto rows = random_normal<half>(128);
  const DeviceBuffer<half> k(std::vector<half>(rows.begin(), rows.begin() + 64));
  const DeviceBuffer<half> v(std::vector<half>(rows.begin() + 64, rows.end()));
  const auto view = [&](int64_t first) {
    const std::array<int64_t, 4> extents{2, 1, 1, 64}, strides{stride, 64, 64, 1};
    return TensorView(reinterpret_cast<std::byte*>(memory.data() + first), DType::kFloat16,
                      memory.device(), extents, strides);
  };
  const DeviceBuffer<int32_t> indptr(std::vector<int32_t>{0, 1}), page(std::vector<int32_t>{1}),
      last(std::vector<int32_t>{1});
  kv_append(cuda_context(), PagedKv::from_pool(view(0), view(64)),
            {indptr.view({2}), page.view({1}), last.view({1})}, k.view({1, 1, 64}),
            v.view({1, 1, 64}));
  EXPECT_TRUE(same_bits<half>(memory.download(size_t(stride), 128), rows));
  EXPECT_TRUE(memory.untouched(0, size_t(stride)));
}

TEST_F(KvCacheCuda, ValidationReadsTheTablesOfTheDevice) {
  const ScopedValidation on;
  ReplayedCache cache;
  const auto expect = [&](const char* message) {
    expect_invalid({message}, [&] { cache.run(cuda_context()); });
  };
  cache.upload({0, 2, 3, 3}, {5, 8, 7, -1, -1, -1, -1, -1}, {1, 1, -9}, {0, 1, 2, 3});
  expect("pages[1] is 8, expected below num_pages = 8");
  cache.upload({0, 2, 3, 3}, {5, 2, 7, -1, -1, -1, -1, -1}, {1, 5, -9}, {0, 1, 2, 3});
  expect("last_page_len[1] is 5, expected 1 to page_size = 4");
  cache.upload({0, 2, 3, 3}, {5, 2, 7, -1, -1, -1, -1, -1}, {1, 1, -9}, {0, 1, 2, 7});
  expect("seq_indptr[3] is 7, expected at least seq_indptr[2] = 2 and at most num_tokens = 6");
}

template <class T>
class MergeStatesCuda : public CudaTest {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(MergeStatesCuda, Types);

TYPED_TEST(MergeStatesCuda, AgreesWithTheDefinition) {
  DeviceMirror between_guards, flush(Guards::kFlush);
  for (int round = 0; round < small_or(10, 100); ++round) {
    check_merge_states<TypeParam>(this->cuda_context(), round % 2 == 0 ? between_guards : flush);
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

TYPED_TEST(MergeStatesCuda, MayWriteOverItsInputs) {
  for (int round = 0; round < 3; ++round) {
    check_merge_in_place<TypeParam>(this->cuda_context(), [](const auto& call) {
      DeviceMirror mirror;
      call(mirror);
    });
  }
}

}  // namespace
}  // namespace heddle::testing
