#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

#include "heddle/ops/linear_site.h"

#include "core/math.h"
#include "exec_context.h"
#include "expect_error.h"
#include "isa.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/lora/test/lora_cases.h"
#include "poison.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using testing::LoraHalf;
using testing::LoraTableOf;
using testing::PoisonedBuffer;
using testing::random_int;

/// A random site with weights of adapters in T.
template <class T>
class SiteCase {
 public:
  static constexpr int kNumSlots = 5;
  static constexpr int64_t kGap = 3;  // between the rows of x, of NaN, and of y

  explicit SiteCase(int64_t tokens, bool repeated = false)
      : tokens_(tokens),
        in_(32 * random_int(1, 6)),
        type_(testing::pick({WeightType::kF32, WeightType::kQ4_1, WeightType::kQ5_0})),
        batch_(tokens, kNumSlots, repeated),
        x_(size_t(tokens * (in_ + kGap)), NAN) {
    for (int64_t t = 0; t < tokens; ++t) {
      const auto row = testing::random_normal<float>(size_t(in_));
      std::ranges::copy(row, x_.begin() + t * (in_ + kGap));
    }
    const int64_t num_outputs = random_int(1, 3);
    const auto layout_a = random_layout(), layout_b = random_layout();
    for (int64_t i = 0; i < num_outputs; ++i) {
      const int64_t out = testing::pick<int64_t>({1, 17, 64, 65, random_int(1, 700)});
      outs_.push_back(out);
      weights_.emplace_back(ExecContext{}, type_, out, in_,
                            random_stored(type_, out * in_, testing::rng()));
      biases_.push_back(testing::random_normal<float>(size_t(out)));
      std::vector<int> ranks;
      for (int slot = 0; slot < kNumSlots; ++slot) {
        ranks.push_back(random_int(0, 3) == 0 ? 0 : static_cast<int>(random_int(1, 70)));
      }
      a_.emplace_back(layout_a, in_, ranks);
      b_.emplace_back(layout_b, out, ranks);
    }
  }

  /// y of both calls, in f32 with gaps that must stay as they were.
  using Results = std::vector<PoisonedBuffer<float>>;

  template <class Call>
  Results run(const Call& call) {
    Results ys;
    std::vector<LinearOutput> outputs;
    for (const int64_t out : outs_) ys.emplace_back(size_t(tokens_ * (out + kGap)));
    for (size_t i = 0; i < outs_.size(); ++i) {
      outputs.push_back({ys[i].view({tokens_, outs_[i] + kGap}).narrow(1, 0, outs_[i]),
                         weights_[i].view(),
                         i == 0 ? host_view(biases_[i].data(), {outs_[i]}) : ConstTensorView()});
    }
    const auto table_of = [](const std::vector<LoraHalf<T>>& halves) {
      std::vector<const LoraHalf<T>*> slices;
      for (const LoraHalf<T>& half : halves) slices.push_back(&half);
      return LoraTableOf<T>(slices);
    };
    const LoraTableOf<T> a = table_of(a_), b = table_of(b_);
    const ConstTensorView x =
        host_view(std::as_const(x_).data(), {tokens_, in_ + kGap}).narrow(1, 0, in_);
    call(outputs, x, LinearAdapters{a.table, b.table, batch_.batch});
    return ys;
  }

  [[nodiscard]] size_t workspace_bytes() const {
    return std::max(lora_apply_workspace_bytes({}, tokens_, in_, 3, 70),
                    lora_pairs_workspace_bytes({}, tokens_, in_, 0, 3, 70)) +
           linear_workspace_bytes(tokens_, in_, activations_);
  }

  /// Random pairs in place of the batch.
  void use_pairs() {
    starts_ = {0};
    for (int64_t t = 0; t < tokens_; ++t) starts_.push_back(starts_.back() + int32_t(t % 3));
    for (int i = 0; i < starts_.back(); ++i) {
      slots_.push_back(static_cast<int32_t>(random_int(-1, kNumSlots)));
    }
    batch_.batch = LoraBatch::from_pairs(host_view(starts_.data(), {tokens_ + 1}),
                                         host_view(slots_.data(), {std::ssize(slots_)}));
  }

  /// The call has the bits of linear and of lora_apply after it, on every target, with any number
  /// of threads.
  void check() {
    std::vector<std::byte> memory(workspace_bytes());
    for (const int64_t target : testing::cpu_targets()) {
      const testing::ScopedCpuTarget scoped(target);
      const auto in_two_calls = [&](const auto& outputs, const auto& x, const auto& adapters) {
        Workspace workspace(memory);
        ExecContext ctx;
        ctx.workspace = &workspace;
        linear(ctx, outputs, x, activations_);
        std::vector<LoraSlice> slices;
        for (const LinearOutput& output : outputs) slices.push_back({output.y});
        lora_apply(ctx, slices, x, adapters.a, adapters.b, adapters.batch);
      };
      const Results want = run(in_two_calls);
      for (const int num_threads : {0, 1, 2, 3, 8}) {
        SCOPED_TRACE(::testing::Message()
                     << testing::cpu_target_name(target) << ", " << num_threads << " threads, "
                     << tokens_ << " tokens, activations " << int(activations_));
        ThreadPool threads(std::max(num_threads, 1));
        double seconds = 1.0, elapsed = 0.0;
        const Results got = run([&](const auto& outputs, const auto& x, const auto& adapters) {
          Workspace workspace(memory);
          ExecContext ctx = testing::context_with(num_threads == 0 ? nullptr : &threads);
          ctx.workspace = &workspace;
          linear_with_adapters(ctx, outputs, x, adapters, nullptr, activations_);
          const auto begin = std::chrono::steady_clock::now();
          linear_with_adapters(ctx, outputs, x, adapters, &seconds, activations_);
          elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        });
        // Added to what it was; 1e-9: of which doubles near 1 are sure.
        EXPECT_TRUE(!has_adapters() || seconds > 1.0);
        EXPECT_TRUE(seconds >= 1.0 && seconds <= 1.0 + elapsed + 1e-9) << seconds;
        expect_same(got, want);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }

 private:
  /// Whether a row has one.
  [[nodiscard]] bool has_adapters() const {
    return batch_.batch.pair_starts ||
           std::ranges::any_of(batch_.slots, [](int slot) { return slot >= 0; });
  }
  static LoraLayout random_layout() {
    return testing::pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor});
  }

  void expect_same(const Results& got, const Results& want) const {
    for (size_t i = 0; i < outs_.size(); ++i) {
      EXPECT_TRUE(got[i].guards_intact());
      for (int64_t t = 0; t < tokens_; ++t) {
        for (int64_t o = 0; o < outs_[i] + kGap; ++o) {
          const auto at = size_t(t * (outs_[i] + kGap) + o);
          ASSERT_EQ(std::memcmp(got[i].data() + at, want[i].data() + at, sizeof(float)), 0)
              << "output " << i << ", row " << t << ", column " << o << ": " << got[i][at]
              << ", expected " << want[i][at];
          ASSERT_TRUE(o < outs_[i] ? got[i][at] == got[i][at] : got[i].untouched(at));
        }
      }
    }
  }

  int64_t tokens_, in_;
  LinearActivations activations_ =
      testing::pick({LinearActivations::kFloat32, LinearActivations::kInt8});
  WeightType type_;
  testing::RandomLoraBatch batch_;
  std::vector<float> x_;
  std::vector<int64_t> outs_;
  std::vector<OwnedWeight> weights_;
  std::vector<std::vector<float>> biases_;
  std::vector<LoraHalf<T>> a_, b_;
  std::vector<int32_t> starts_, slots_;
};

template <class T>
class LinearWithAdapters : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(LinearWithAdapters, Types);

TYPED_TEST(LinearWithAdapters, HasTheBitsOfTheTwoCalls) {
  for (const int64_t tokens : {1, 2, 3, 8, 9, 30}) {
    for (int i = 0; i < testing::small_or(1, 3); ++i) {
      SiteCase<TypeParam>(tokens).check();
      if (TestFixture::HasFatalFailure()) return;
    }
  }
  SiteCase<TypeParam>(40, true).check();
}

TYPED_TEST(LinearWithAdapters, TakesMoreRowsThanAWindowHas) {
  SiteCase<TypeParam>(testing::small_or(257, 300), true).check();
}

TYPED_TEST(LinearWithAdapters, TakesPairsOfAdapters) {
  SiteCase<TypeParam> site(11);
  site.use_pairs();
  site.check();
}

TEST(LinearWithAdaptersErrors, NameWhatIsWrong) {
  SiteCase<float> site(2);
  const auto refuse = [&](const char* text, const auto& change, bool has_workspace = true) {
    testing::expect_error(ErrorCode::kInvalidArgument, {text}, [&] {
      site.run([&](std::vector<LinearOutput> outputs, const auto& x, LinearAdapters adapters) {
        std::vector<std::byte> memory(site.workspace_bytes());
        Workspace workspace(memory);
        ExecContext ctx;
        if (has_workspace) ctx.workspace = &workspace;
        change(outputs, adapters);
        linear_with_adapters(ctx, outputs, x, adapters);
      });
    });
  };
  refuse("linear_with_adapters: 17 outputs, expected at most 16",
         [](auto& outputs, auto&) { outputs.resize(17, outputs[0]); });
  refuse("a.num_slices is", [](auto&, auto& adapters) { adapters.a.num_slices = 9; });
  refuse("the batch has neither slot_ids nor segments",
         [](auto&, auto& adapters) { adapters.batch = {}; });
  refuse("has no data", [](auto& outputs, auto&) { outputs[0].weight.data = nullptr; });
  const std::vector<int32_t> ids{0, 1};
  refuse(
      "the context has no workspace",
      [&](auto&, auto& adapters) {
        adapters.batch = LoraBatch::from_ids(host_view(ids.data(), {2}));
      },
      false);
}

}  // namespace
}  // namespace heddle
