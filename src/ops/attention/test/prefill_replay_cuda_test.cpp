// batch_prefill in a captured graph: lengths, tables and rows are those that lie on the device when
// it replays.
#include <type_traits>
#include <vector>

#include "cuda/check.h"
#include "cuda_test.h"
#include <gtest/gtest.h>

#include "heddle/ops/attention.h"

#include "compare.h"
#include "core/math.h"
#include "device_buffer.h"
#include "graph_timing_cuda.h"
#include "ops/attention/test/paged_cases.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

/// Room for kSeqs sequences in one pool of pages; what they are changes from replay to replay.
/// TKV: dtype of the cache.
template <class T, class TKV>
class ChangingBatch {
 public:
  static constexpr int64_t kSeqs = 5, kTokens = 260, kPages = 120, kPageSize = 16;
  static constexpr int64_t kKvHeads = 2, kQHeads = 6, kDim = 64;

  /// Draws lengths, as long as the batch has room, and places its pages anew.
  void change() {
    std::vector<int64_t> q_lens, kv_lens;
    std::vector<int32_t> last;
    int64_t tokens = 0, pages = 0;
    page_starts_ = {0};
    for (int64_t i = 0; i < kSeqs; ++i) {
      const int64_t kv_len = std::min(pick<int64_t>({0, 16, 17, random_int(1, small_or(90, 600))}),
                                      (kPages - pages) * kPageSize);
      const int64_t of_seq = ceil_div(kv_len, kPageSize);
      q_lens.push_back(
          std::min(pick<int64_t>({0, 1, random_int(1, small_or(20, 130))}), kTokens - tokens));
      kv_lens.push_back(kv_len);
      last.push_back(static_cast<int32_t>(kv_len - (of_seq - 1) * kPageSize));
      tokens += q_lens.back();
      pages += of_seq;
      page_starts_.push_back(static_cast<int32_t>(pages));
    }
    const std::vector<int64_t> starts = starts_of(q_lens);
    std::vector<int32_t> ids(static_cast<size_t>(kPages));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), rng());
    std::fill(ids.begin() + pages, ids.end(), int32_t{1} << 30);  // of no sequence
    q_starts_ = {starts.begin(), starts.end()};
    q_indptr_.upload(q_starts_);
    page_indptr_.upload(page_starts_);
    pages_.upload(ids);
    last_page_len_.upload(last);
  }

  /// The op with room for every batch, or for as many rows and pages as the present one has.
  void run(const ExecContext& ctx, bool exact) {
    const int64_t tokens = exact ? q_starts_.back() : kTokens;
    const int64_t pages = exact ? page_starts_.back() : kPages;
    const TensorView all = pool_.view({2 * kPages, kKvHeads, kPageSize, kDim});
    const PageTable table{page_indptr_.view({kSeqs + 1}), pages_.view({kPages}).narrow(0, 0, pages),
                          last_page_len_.view({kSeqs})};
    batch_prefill(ctx, o_.view({kTokens, kQHeads, kDim}).narrow(0, 0, tokens),
                  lse_.view({kTokens, kQHeads}).narrow(0, 0, tokens),
                  q_.view({kTokens, kQHeads, kDim}).narrow(0, 0, tokens),
                  q_indptr_.view({kSeqs + 1}),
                  cache(all.narrow(0, 0, kPages), all.narrow(0, kPages, kPages)), table);
  }
  void poison() {
    o_.poison();
    lse_.poison();
  }
  [[nodiscard]] std::vector<T> rows() const { return o_.download(0, num_elements()); }
  [[nodiscard]] std::vector<float> lse() const {
    return lse_.download(0, num_elements() / size_t{kDim});
  }
  /// No row after the last sequence's is touched.
  [[nodiscard]] bool rest_untouched() const {
    return o_.untouched(num_elements(), o_.size() - num_elements()) && o_.guards_intact() &&
           lse_.guards_intact();
  }

 private:
  [[nodiscard]] static PagedKv cache(const TensorView& k, const TensorView& v) {
    if constexpr (std::is_same_v<TKV, float8_e4m3>) {
      return PagedKv::from_pool(k, v, 0.75f, 2.0f);
    } else {
      return PagedKv::from_pool(k, v);
    }
  }
  [[nodiscard]] size_t num_elements() const { return size_t(q_starts_.back() * kQHeads * kDim); }

  DeviceBuffer<TKV> pool_{random_normal<TKV>(2 * kPages * kKvHeads * kPageSize * kDim)};
  DeviceBuffer<T> q_{random_normal<T>(kTokens * kQHeads * kDim)};
  DeviceBuffer<T> o_{size_t{kTokens * kQHeads * kDim}};
  DeviceBuffer<float> lse_{size_t{kTokens * kQHeads}};
  DeviceBuffer<int32_t> q_indptr_{size_t{kSeqs + 1}}, page_indptr_{size_t{kSeqs + 1}};
  DeviceBuffer<int32_t> pages_{size_t{kPages}}, last_page_len_{size_t{kSeqs}};
  std::vector<int32_t> q_starts_, page_starts_;
};

template <class Q, class KV>
struct TypesOf {
  using Query = Q;
  using Cache = KV;
};

template <class Types>
class AttentionPrefillReplay : public CudaTest {};
using AllTypes =
    ::testing::Types<TypesOf<half, half>, TypesOf<bfloat16, bfloat16>, TypesOf<half, float8_e4m3>>;
TYPED_TEST_SUITE(AttentionPrefillReplay, AllTypes);

TYPED_TEST(AttentionPrefillReplay, SeesLengthsAndTablesThatChangedInPlace) {
  const DeviceStream stream;
  const ExecContext ctx = this->cuda_context(stream.get());
  using T = typename TypeParam::Query;
  ChangingBatch<T, typename TypeParam::Cache> batch;
  batch.change();
  batch.run(ctx, false);  // loads the kernels
  const RecordedGraph graph(stream.get(), [&] { batch.run(ctx, false); });
  for (int round = 0; round < small_or(4, 20); ++round) {
    batch.change();
    batch.poison();
    batch.run(ctx, true);
    stream.wait();
    const auto want = batch.rows();
    const auto want_lse = batch.lse();
    batch.poison();
    graph.launch(stream.get());
    stream.wait();
    ASSERT_TRUE(same_bits<T>(batch.rows(), want)) << "round " << round;
    ASSERT_TRUE(same_bits<float>(batch.lse(), want_lse)) << "round " << round;
    ASSERT_TRUE(batch.rest_untouched()) << "round " << round;
  }
}

}  // namespace
}  // namespace heddle::testing
