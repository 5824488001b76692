// batch_decode in a captured graph: lengths and tables are those that lie on the device when it
// replays. And sequences that several blocks share: the bits are those without a workspace, where
// each block has whole ones.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "cuda/check.h"
#include "cuda_test.h"
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"
#include "heddle/ops/attention.h"

#include "compare.h"
#include "core/math.h"
#include "device_buffer.h"
#include "graph_timing_cuda.h"
#include "late_copy.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

/// Room for sequences in one pool of pages; their lengths and places change from replay to replay.
/// TKV: dtype of the cache.
template <class T, class TKV>
class ChangingSequences {
 public:
  static constexpr int64_t kKvHeads = 2, kQHeads = 8, kDim = 128, kPageSize = 16;

  /// pool: keys, then values of num_pages.
  ChangingSequences(int64_t num_seqs, int64_t num_pages, const std::vector<TKV>& pool)
      : num_seqs_(num_seqs),
        num_pages_(num_pages),
        pool_(pool),
        q_(random_normal<T>(num_seqs * kQHeads * kDim)),
        o_(size_t(num_seqs * kQHeads * kDim)),
        lse_(size_t(num_seqs * kQHeads)),
        scales_(scales_for(pool)),
        page_indptr_(size_t(num_seqs + 1)),
        pages_(size_t(num_pages)),
        last_page_len_(size_t(num_seqs)) {}

  /// Draws lengths up to `longest`, as long as there are pages, and places them anew.
  void change(int64_t longest) {
    std::vector<int32_t> starts{0}, last;
    for (int64_t i = 0; i < num_seqs_; ++i) {
      const int64_t room = (num_pages_ - starts.back()) * kPageSize;
      const int64_t length =
          std::min(pick<int64_t>({0, 16, 17, random_int(1, 300), random_int(1, longest)}), room);
      const int64_t of_seq = ceil_div(length, kPageSize);
      last.push_back(static_cast<int32_t>(length - (of_seq - 1) * kPageSize));
      starts.push_back(starts.back() + static_cast<int32_t>(of_seq));
    }
    page_indptr_.upload(starts);
    last_page_len_.upload(last);
    place(starts.back());
  }
  /// The lengths of `other`, which has as many sequences, on other pages.
  void take_lengths_of(const ChangingSequences& other) {
    const std::vector<int32_t> starts = other.page_indptr_.download();
    page_indptr_.upload(starts);
    last_page_len_.upload(other.last_page_len_.download());
    place(starts.back());
  }

  void run(const ExecContext& ctx) {
    const PageTable table{page_indptr_.view({num_seqs_ + 1}), pages_.view({num_pages_}),
                          last_page_len_.view({num_seqs_})};
    batch_decode(ctx, o_.view({num_seqs_, kQHeads, kDim}), lse_.view({num_seqs_, kQHeads}),
                 q_.view({num_seqs_, kQHeads, kDim}), cache(), table);
  }
  static std::vector<TKV> random_pool(int64_t num_pages) {
    return random_normal<TKV>(size_t(2 * num_pages * kKvHeads * kPageSize * kDim));
  }
  /// Scales that follow from the codes; of no use without.
  static std::vector<float> scales_for(const std::vector<TKV>& pool) {
    std::vector<float> scales(pool.size() / size_t{kDim});
    for (size_t i = 0; i < scales.size(); ++i) {
      scales[i] = 0.5f + std::abs(to_float(pool[i * size_t{kDim}]));
    }
    return scales;
  }
  void poison() {
    o_.poison();
    lse_.poison();
  }
  void poison_tables() {
    page_indptr_.poison();
    pages_.poison();
    last_page_len_.poison();
  }
  /// Copies that make q and the tables those of `other`, which has as many sequences.
  [[nodiscard]] std::vector<LateCopy> copies_of(const ChangingSequences& other) const {
    const auto copy = [](const auto& to, const auto& from) {
      return LateCopy{to.data(), from.data(), to.size() * sizeof(*to.data())};
    };
    return {copy(q_, other.q_), copy(page_indptr_, other.page_indptr_), copy(pages_, other.pages_),
            copy(last_page_len_, other.last_page_len_)};
  }
  [[nodiscard]] std::vector<T> rows() const { return o_.download(0, o_.size()); }
  [[nodiscard]] std::vector<float> lse() const { return lse_.download(0, lse_.size()); }
  [[nodiscard]] int64_t num_seqs() const { return num_seqs_; }

 private:
  /// Draws the table's first entries; no sequence has the others.
  void place(int32_t num_used) {
    std::vector<int32_t> ids(static_cast<size_t>(num_pages_));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), rng());
    std::fill(ids.begin() + num_used, ids.end(), int32_t{1} << 30);
    pages_.upload(ids);
  }

  [[nodiscard]] PagedKv cache() const {
    const TensorView all = pool_.view({2 * num_pages_, kKvHeads, kPageSize, kDim});
    const TensorView k = all.narrow(0, 0, num_pages_), v = all.narrow(0, num_pages_, num_pages_);
    if constexpr (std::is_same_v<TKV, float8_e4m3>) {
      const TensorView scales = scales_.view({2 * num_pages_, kKvHeads, kPageSize});
      return PagedKv::from_pool(k, v, scales.narrow(0, 0, num_pages_),
                                scales.narrow(0, num_pages_, num_pages_));
    } else {
      return PagedKv::from_pool(k, v);
    }
  }

  int64_t num_seqs_, num_pages_;
  DeviceBuffer<TKV> pool_;
  DeviceBuffer<T> q_, o_;
  DeviceBuffer<float> lse_, scales_;
  DeviceBuffer<int32_t> page_indptr_, pages_, last_page_len_;
};

template <class Q, class KV>
struct TypesOf {
  using Query = Q;
  using Cache = KV;
};

template <class Types>
class AttentionDecodeReplay : public CudaTest {
 protected:
  using T = typename Types::Query;
  using Sequences = ChangingSequences<T, typename Types::Cache>;
  [[nodiscard]] static size_t workspace_bytes(const Sequences& s, Device device) {
    return batch_decode_workspace_bytes(device, s.num_seqs(), Sequences::kQHeads, Sequences::kDim);
  }
};
using AllTypes = ::testing::Types<TypesOf<half, half>, TypesOf<bfloat16, bfloat16>,
                                  TypesOf<bfloat16, float8_e4m3>>;
TYPED_TEST_SUITE(AttentionDecodeReplay, AllTypes);

TYPED_TEST(AttentionDecodeReplay, SeesLengthsAndTablesThatChangedInPlace) {
  using T = typename TestFixture::T;
  using Sequences = typename TestFixture::Sequences;
  const DeviceStream stream;
  const Device device = this->cuda_context(stream.get()).device;
  const int64_t num_pages = small_or(100, 1500);
  const auto pool = Sequences::random_pool(num_pages);
  for (const int64_t num_seqs : {1, 5, 70, small_or(80, 600)}) {
    Sequences sequences(num_seqs, num_pages, pool);
    const CudaContext context(device, stream.get(), this->workspace_bytes(sequences, device));
    const CudaContext without(device, stream.get(), 0);
    sequences.change(1000);
    sequences.run(context.exec());  // loads the kernels
    const RecordedGraph graph(stream.get(), [&] { sequences.run(context.exec()); });
    for (int round = 0; round < small_or(2, 6); ++round) {
      sequences.change(small_or(600, 20000));
      sequences.poison();
      sequences.run(without.exec());
      stream.wait();
      const auto want = sequences.rows();
      const auto want_lse = sequences.lse();
      for (int replay = 0; replay < 2; ++replay) {
        sequences.poison();
        graph.launch(stream.get());
        stream.wait();
        ASSERT_TRUE(same_bits<T>(sequences.rows(), want)) << num_seqs << " sequences";
        ASSERT_TRUE(same_bits<float>(sequences.lse(), want_lse)) << num_seqs << " sequences";
      }
    }
  }
}

/// Where chips can, decode starts before the previous kernel has ended, and looks at what
/// lies in the tables then.
TYPED_TEST(AttentionDecodeReplay, SeesWhatTheKernelInFrontWritesLast) {
  using T = typename TestFixture::T;
  using Sequences = typename TestFixture::Sequences;
  const DeviceStream stream;
  const Device device = this->cuda_context(stream.get()).device;
  const int64_t num_pages = small_or(100, 1500);
  const auto pool = Sequences::random_pool(num_pages);
  for (const int64_t num_seqs : {1, 5, 70, 130}) {
    Sequences sequences(num_seqs, num_pages, pool), late(num_seqs, num_pages, pool);
    const CudaContext context(device, stream.get(), this->workspace_bytes(sequences, device));
    for (int round = 0; round < small_or(3, 12); ++round) {
      late.change(small_or(600, 5000));
      late.run(context.exec());
      stream.wait();
      const auto want = late.rows();
      sequences.change(small_or(600, 5000));
      if (round % 3 == 1) sequences.take_lengths_of(late);
      if (round % 3 == 2) sequences.poison_tables();
      sequences.poison();
      copy_late(sequences.copies_of(late), stream.get());
      sequences.run(context.exec());
      stream.wait();
      ASSERT_TRUE(same_bits<T>(sequences.rows(), want)) << num_seqs << " sequences";
    }
  }
}

}  // namespace
}  // namespace heddle::testing
