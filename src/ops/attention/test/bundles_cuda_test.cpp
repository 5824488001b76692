// batch_decode of bundles on a GPU: each query has the bits that it has alone.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "ops/attention/test/attention_cuda_test_body.h"

namespace heddle::testing {
namespace {

/// Rows whose last tokens are queries, each a sequence of batch_decode, and the bundles of them.
template <class T>
struct BundledRows {
  HeadShape heads;
  int64_t window = -1;
  std::vector<Sequence<T, T>> queries{};
  std::vector<int32_t> indptr{0};
  int64_t largest = 1;

  /// Queries of the last q_len positions of a sequence.
  void add(const Sequence<T, T>& row) {
    const int64_t q_row = int64_t{heads.num_q_heads()} * heads.head_dim;
    const int64_t kv_row = int64_t{heads.num_kv_heads} * heads.head_dim;
    const int64_t first = row.kv_len - row.q_len + 1;
    const auto part = [](const std::vector<T>& values, int64_t begin, int64_t end) {
      return std::vector<T>(values.begin() + begin, values.begin() + end);
    };
    for (int64_t i = 0; i < row.q_len; ++i) {
      const int64_t end = (first + i) * kv_row;
      queries.push_back({1, first + i, part(row.q, i * q_row, (i + 1) * q_row), part(row.k, 0, end),
                         part(row.v, 0, end)});
    }
    for (int64_t i = 0; i < row.q_len;) {
      const int64_t count = decode_bundle(kDType<T>, heads.num_q_heads(), heads.num_kv_heads,
                                          heads.head_dim, window, first + i, row.q_len - i);
      i += count;
      largest = std::max(largest, count);
      indptr.push_back(indptr.back() + static_cast<int32_t>(count));
    }
  }
  /// The options with the bundles, on the device until the next call.
  [[nodiscard]] AttentionOptions options(AttentionOptions options, const AttentionRun& run) const {
    options.window_left = window;
    options.bundle_indptr =
        run.mirror(ConstTensorView(host_view(indptr.data(), {std::ssize(indptr)})));
    options.max_bundle = largest;
    return options;
  }
};

template <class T>
class AttentionBundles : public AttentionCuda<T> {};
TYPED_TEST_SUITE(AttentionBundles, HalfTypes);

/// At borders of segments, of tiles and of windows, with other rows around.
TYPED_TEST(AttentionBundles, GiveEachQueryItsBits) {
  int64_t num_together = 0;
  for (int round = 0; round < small_or(10, 150); ++round) {
    BundledRows<TypeParam> rows{
        .heads = {static_cast<int>(pick<int64_t>({1, 2, 3, 4, 5, 8, 16, 20})),
                  static_cast<int>(random_int(1, 3)),
                  static_cast<int>(pick<int64_t>({64, 128, 128, 96, 256, random_int(1, 200)}))}};
    rows.window = pick<int64_t>({-1, -1, 0, 7, 100, random_int(1, small_or<int64_t>(60, 2000))});
    const int64_t longest = small_or<int64_t>(300, 3000);
    for (int64_t i = random_int(1, small_or(3, 12)); i > 0; --i) {
      const int64_t q_len = pick<int64_t>({1, 2, 4, 8, 16, random_int(1, 16)});
      const int64_t border = pick<int64_t>({16, 64, 128, 1024, 2048, random_int(16, longest)});
      const int64_t kv_len = std::min(std::max(q_len, border + random_int(-3, 17)), longest);
      rows.add(random_sequence<TypeParam, TypeParam>(rows.heads, q_len, kv_len));
    }
    for (int64_t i = random_int(0, 3); i > 0; --i) rows.indptr.push_back(rows.indptr.back());
    num_together += std::ssize(rows.queries) - (std::ssize(rows.indptr) - 1);
    SCOPED_TRACE(::testing::Message()
                 << rows.queries.size() << " queries, bundles of up to " << rows.largest
                 << ", heads " << rows.heads.num_kv_heads << " x " << rows.heads.group_size
                 << " of " << rows.heads.head_dim << ", window " << rows.window);
    AttentionOptions options;
    if (random_int(0, 3) == 0) options.logits_soft_cap = 5.0f;
    options.window_left = rows.window;
    const AttentionRun run = this->any_run();
    const Setting setting{
        .page_size = static_cast<int>(pick<int64_t>({16, 64, 7})), .decode = true, .run = &run};
    const auto want = attend(rows.heads, rows.queries, setting, options);
    const auto got = attend(rows.heads, rows.queries, setting, rows.options(options, run));
    ASSERT_TRUE(got.same_bits_as(want));
  }
  EXPECT_GT(num_together, 0);
}

/// What a later query of a bundle may see alone does not reach those before it.
TYPED_TEST(AttentionBundles, KeepWhatIsNotFiniteToTheQueriesThatSeeIt) {
  const AttentionRun run = this->run();
  const Setting setting{.decode = true, .run = &run};
  BundledRows<TypeParam> clean{.heads = {4, 2, 128}};
  auto row = random_sequence<TypeParam, TypeParam>(clean.heads, 8, 150);
  clean.add(row);
  ASSERT_EQ(clean.largest, 8);
  const auto want = attend(clean.heads, clean.queries, setting, AttentionOptions{});
  for (const float poison :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    BundledRows<TypeParam> rows{.heads = clean.heads};
    const int64_t kv_row = int64_t{clean.heads.num_kv_heads} * clean.heads.head_dim;
    for (int64_t i = 145 * kv_row; i < 146 * kv_row;
         ++i) {  // the third query is the first to see it
      row.k[size_t(i)] = row.v[size_t(i)] = from_float<TypeParam>(poison);
    }
    rows.add(row);
    const auto got = attend(rows.heads, rows.queries, setting, rows.options({}, run));
    EXPECT_TRUE(got.tokens(rows.heads, 0, 3).same_bits_as(want.tokens(rows.heads, 0, 3)));
    for (int64_t i = 3; i < 8; ++i) {
      const auto its = got.tokens(rows.heads, i, 1);
      for (const TypeParam& value : its.o) EXPECT_NE(to_float(value), to_float(value));
    }
  }
}

/// Queries that are cut in two ways are no bundle: they are NaN, the context says so, and others
/// are as ever.
TYPED_TEST(AttentionBundles, AreToldWhereTheyAreWrong) {
  const Device device{DeviceType::kCuda, current_device()};
  CudaContext context(device, nullptr, 0);
  DeviceMirror mirror;
  const AttentionRun run{context.exec(), mirror, true};
  const Setting setting{.decode = true, .run = &run};
  BundledRows<TypeParam> rows{.heads = {4, 1, 64}};
  rows.add(random_sequence<TypeParam, TypeParam>(rows.heads, 2, 40));
  rows.add(random_sequence<TypeParam, TypeParam>(rows.heads, 4, 1026));
  const auto want = attend(rows.heads, rows.queries, setting, AttentionOptions{});
  ASSERT_EQ(rows.indptr, (std::vector<int32_t>{0, 2, 4, 6}));
  ASSERT_FALSE(context.poll().has_value());
  for (const std::vector<int32_t>& wrong :
       {std::vector<int32_t>{0, 2, 6}, {0, 2, 5, 6}, {0, 3, 6}, {0, 2, 600}, {0, 2, -1}}) {
    rows.indptr = wrong;
    rows.largest = 4;
    const auto got = attend(rows.heads, rows.queries, setting, rows.options({}, run));
    if (wrong[1] == 2) {
      EXPECT_TRUE(got.tokens(rows.heads, 0, 2).same_bits_as(want.tokens(rows.heads, 0, 2)));
    }
    const std::optional<Fault> fault = context.poll();
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->array, std::string("bundle_indptr"));
    if (wrong == std::vector<int32_t>{0, 2, 6}) {
      for (const TypeParam& value : got.tokens(rows.heads, 2, 4).o) {
        EXPECT_NE(to_float(value), to_float(value));
      }
    }
  }
}

}  // namespace
}  // namespace heddle::testing
