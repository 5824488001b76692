#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "heddle/ops/linear_site.h"

#include "late_copy.h"
#include "ops/linear/format/packed_layout.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/linear_site/call/site_kernels.h"
#include "ops/linear_site/test/linear_site_test_body.h"
#include "ops/lora/test/lora_cuda_cases.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

/// A site on the device, with weights and y of its own.
struct ReplaySite {
  /// kF32: dense weights.
  ReplaySite(int64_t rows, int64_t in, std::vector<int64_t> outs, WeightType type)
      : rows(rows), in(in), outs(std::move(outs)), type(type) {
    for (const int64_t out : this->outs) {
      y.emplace_back(std::vector<bfloat16>(size_t(rows * out)));
      if (type == WeightType::kF32) {
        weights.emplace_back(random_normal<bfloat16>(size_t(out * in), 0.05f));
        continue;
      }
      const auto stored = random_stored(type, out * in, rng(), 0.01f);
      packed.emplace_back(std::span(OwnedWeight(ExecContext{}, type, out, in, stored).bytes()));
    }
  }
  void call(const ExecContext& ctx, const ConstTensorView& x, LinearPath path,
            const LinearAdapters* adapters, const cuda::linear_site::Options& options) const {
    std::vector<LinearSlice> slices;
    for (size_t s = 0; s < outs.size(); ++s) {
      LinearSlice& slice = slices.emplace_back(LinearSlice{.y = y[s].view({rows, outs[s]})});
      if (type == WeightType::kF32) {
        slice.weight = weights[s].view({outs[s], in});
      } else {
        slice.packed = {type, outs[s], in, packed[s].data()};
      }
    }
    cuda::linear_site::run(ctx, slices, x, path, adapters, options);
  }
  void poison() {
    for (auto& of_slice : y) of_slice.poison();
  }
  [[nodiscard]] std::vector<std::vector<bfloat16>> download() const {
    std::vector<std::vector<bfloat16>> result;
    for (const auto& of_slice : y) result.push_back(of_slice.download());
    return result;
  }

  int64_t rows, in;
  std::vector<int64_t> outs;
  WeightType type;
  std::vector<DeviceBuffer<bfloat16>> weights, y;
  std::vector<DeviceBuffer<std::byte>> packed;
};

struct ReplayCase {
  LinearPath path;
  int64_t rows;  // of a prompt more than 256, so that adapters are inside
  WeightType type;
};
const ReplayCase kReplayCases[] = {
    {LinearPath::kDecode, 20, WeightType::kF32},
    {LinearPath::kDecode, 20, WeightType::kQ4_0},
    {LinearPath::kPrompt, small_or(260, 700), WeightType::kF32},
    {LinearPath::kPrompt, small_or(260, 700), WeightType::kQ4_0},
};

TEST(LinearSiteReplay, AGraphFollowsIdsAndTables) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  for (const ReplayCase& c : kReplayCases) {
    const LoraStream stream(Device{DeviceType::kCuda, 0}, size_t{16} << 20, true);
    DeviceSite<bfloat16> adapters(c.rows, 512, {256, 128}, 16, true);
    const ReplaySite site(c.rows, 512, {256, 128}, c.type);
    const auto call = [&](const cuda::linear_site::Options& options) {
      const LinearAdapters given{adapters.a(), adapters.b(), adapters.batch()};
      site.call(stream.ctx(), adapters.x(), c.path, &given, options);
    };
    const Graph graph(stream, [&] { call({}); });
    for (int round = 0; round < small_or(3, 5); ++round) {
      adapters.change();
      graph.launch();
      stream.wait();
      const auto got = site.download();
      call({.route = SiteRoute::kApart});
      stream.wait();
      const auto want = site.download();
      for (size_t s = 0; s < 2; ++s) {
        EXPECT_TRUE(same_bits<bfloat16>(got[s], want[s])) << c.type << ", round " << round;
      }
    }
  }
}

struct ChainCase {
  LinearPath path;
  int64_t rows, features;  // features: of x and of y
  WeightType type;
};
const ChainCase kChainCases[] = {
    {LinearPath::kDecode, 20, 256, WeightType::kF32},
    {LinearPath::kDecode, 20, small_or(512, 1024), WeightType::kQ4K},  // clusters
    {LinearPath::kPrompt, small_or(260, 700), 256, WeightType::kF32},
    {LinearPath::kPrompt, small_or(260, 700), 256, WeightType::kQ4_0},
};

enum class SitesWithAdapters { kNone, kEveryOther, kAll };

/// Sites one after the other, each of which takes y of the previous one as x, and x of the first,
/// which a kernel before it writes last.
class Chain {
 public:
  explicit Chain(const ChainCase& c)
      : case_(c),
        adapters_(c.rows, c.features, {c.features}, 16, true),
        x_(size_t(c.rows * c.features)),
        late_x_(size_t(c.rows * c.features)) {
    for (int i = 0; i < kSites; ++i) {
      sites_.emplace_back(c.rows, c.features, std::vector<int64_t>{c.features}, c.type);
    }
  }

  /// Calls with these adapters; `batch` of DeviceSite, with or without a plan.
  void use(SitesWithAdapters which, const LoraBatch& batch) {
    which_ = which;
    given_ = {adapters_.a(), adapters_.b(), batch};
  }
  /// New x, and NaN where the first kernel and the calls write.
  void restart() {
    late_x_.upload(random_normal<bfloat16>(late_x_.size()));
    clear();
  }
  void clear() {
    x_.poison();
    for (ReplaySite& site : sites_) site.poison();
  }
  /// Each launch may begin before the previous one has ended.
  void call(const LoraStream& stream) {
    const std::array late{LateCopy{x_.data(), late_x_.data(), x_.size() * sizeof(bfloat16)}};
    copy_late(late, stream.get());
    for (int i = 0; i < kSites; ++i) call_site(stream, i, i == 0 ? x_ : y(i - 1));
  }
  /// The same one by one.
  void call_and_wait(const LoraStream& stream) {
    for (int i = 0; i < kSites; ++i) {
      call_site(stream, i, i == 0 ? late_x_ : y(i - 1));
      stream.wait();
    }
  }
  [[nodiscard]] std::vector<bfloat16> result() { return y(kSites - 1).download(); }
  [[nodiscard]] const DeviceSite<bfloat16>& adapters() const { return adapters_; }

 private:
  static constexpr int kSites = 4;

  [[nodiscard]] const DeviceBuffer<bfloat16>& y(int site) const {
    return sites_[size_t(site)].y[0];
  }
  void call_site(const LoraStream& stream, int index, const DeviceBuffer<bfloat16>& x) const {
    const bool has_adapters = which_ == SitesWithAdapters::kAll ||
                              (which_ == SitesWithAdapters::kEveryOther && index % 2 == 1);
    SiteRoute taken = SiteRoute::kApart;
    sites_[size_t(index)].call(stream.ctx(), x.view({case_.rows, case_.features}), case_.path,
                               has_adapters ? &given_ : nullptr, {.taken = &taken});
    EXPECT_EQ(taken != SiteRoute::kApart, has_adapters);
  }

  ChainCase case_;
  DeviceSite<bfloat16> adapters_;
  DeviceBuffer<bfloat16> x_, late_x_;
  std::deque<ReplaySite> sites_;
  SitesWithAdapters which_ = SitesWithAdapters::kNone;
  LinearAdapters given_;
};

void expect_replays_read_what_was_written_last(Chain& chain, const LoraStream& stream) {
  chain.restart();
  chain.call_and_wait(stream);  // loads the kernels
  const Graph graph(stream, [&] { chain.call(stream); });
  for (int replay = 0; replay < small_or(1, 5); ++replay) {
    chain.restart();
    graph.launch();
    stream.wait();
    const auto got = chain.result();
    for (const bfloat16 v : got) ASSERT_TRUE(std::isfinite(to_float(v))) << "replay " << replay;
    chain.clear();
    chain.call_and_wait(stream);
    ASSERT_TRUE(same_bits<bfloat16>(got, chain.result())) << "replay " << replay;
  }
}

TEST(LinearSiteReplay, AChainReadsWhatTheLaunchInFrontWrote) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  for (const ChainCase& c : kChainCases) {
    Chain chain(c);
    for (const bool has_exchange : {false, true}) {
      const LoraStream stream(Device{DeviceType::kCuda, 0}, size_t{16} << 20, has_exchange);
      const LoraBatch planned = chain.adapters().planned(stream.ctx());
      for (const SitesWithAdapters which :
           {SitesWithAdapters::kNone, SitesWithAdapters::kEveryOther, SitesWithAdapters::kAll}) {
        for (const bool has_plan : {false, true}) {
          if (has_plan && which == SitesWithAdapters::kNone) continue;
          chain.use(which, has_plan ? planned : chain.adapters().batch());
          expect_replays_read_what_was_written_last(chain, stream);
          if (::testing::Test::HasFatalFailure()) {
            FAIL() << c.type << ", " << c.rows << " rows, adapters " << int(which) << ", plan "
                   << has_plan << ", exchange " << has_exchange;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::testing
