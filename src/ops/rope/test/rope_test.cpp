#include "heddle/ops/rope.h"

#include <array>
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "compare.h"
#include "exec_context.h"
#include "isa.h"
#include "ops/rope/test/rope_test_body.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::pick;
using testing::PoisonedBuffer;

// A vector of length 1 in each pair; at theta = 1 every pair turns by the position: the values are
// cos 1 and sin 1.
TEST(Rope, TurnsFirstHalfWithSecondHalf) {
  std::array<float, 4> x{1.0f, 0.0f, 0.0f, 1.0f};
  const std::array<int32_t, 1> positions{1};
  rope(ExecContext{}, host_view(x.data(), {1, 1, 4}), host_view(positions.data(), {1}),
       RopeParams{.theta = 1.0});
  EXPECT_FLOAT_EQ(x[0], 0.540302306f);
  EXPECT_FLOAT_EQ(x[1], -0.841470985f);
  EXPECT_FLOAT_EQ(x[2], 0.841470985f);
  EXPECT_FLOAT_EQ(x[3], 0.540302306f);
}

// The parameters of Llama 3.1 8B: theta 5e5, head size 128. The shortest wavelengths are kept, the
// longest stretched by 8.
TEST(Rope, Llama3KeepsShortAndStretchesLongWavelengths) {
  const RopeParams plain{.theta = 5e5};
  RopeParams llama3 = plain;
  llama3.llama3 = Llama3RopeScaling{};
  EXPECT_DOUBLE_EQ(rope_frequency(llama3, 128, 0), 1.0);
  EXPECT_DOUBLE_EQ(rope_frequency(llama3, 128, 63), rope_frequency(plain, 128, 63) / 8.0);
  const double between =
      rope_frequency(llama3, 128, 32);  // wavelength 4442: turns 1.84 times in 8192
  EXPECT_LT(between, rope_frequency(plain, 128, 32));
  EXPECT_GT(between, rope_frequency(plain, 128, 32) / 8.0);
  for (int d = 0; d < 64; ++d) {
    EXPECT_NEAR(rope_frequency(llama3, 128, d) / ref::rope_angle(llama3, 128, d, 1), 1.0, 1e-14);
  }
}

/// The frequencies of some pairs and the attention factor, recorded from transformers 5.23
/// (ROPE_INIT_FUNCTIONS["yarn"]), which computes them in f32.
struct YarnRecord {
  RopeParams params;
  int rotary_dim;
  double attention_factor;
  std::map<int, double> frequencies;
};

const std::vector<YarnRecord>& yarn_records() {
  static const std::vector<YarnRecord> records{
      {{.theta = 1e6, .yarn = YarnRopeScaling{.factor = 4.0, .original_max_position = 32768.0}},
       128,
       yarn_attention_factor(4.0),
       {{0, 1.0},
        {1, 0.8058422207832336},
        {16, 0.03162277862429619},
        {31, 0.000802959781140089},
        {32, 0.0006029411451891065},
        {42, 2.8869548259535804e-05},
        {63, 3.102344408034696e-07}}},
      {{.theta = 1e4, .yarn = YarnRopeScaling{.factor = 40.0, .original_max_position = 4096.0}},
       64,
       yarn_attention_factor(40.0, 1.0, 0.707),
       {{0, 1.0},
        {10, 0.05623412877321243},
        {15, 0.0083345090970397},
        {16, 0.005500000435858965},
        {21, 0.0004149904125370085},
        {24, 2.499999936844688e-05},
        {31, 3.3338035336782923e-06}}},
      {{.theta = 1.5e5,
        .yarn =
            YarnRopeScaling{.factor = 32.0, .original_max_position = 4096.0, .truncate = false}},
       64,
       yarn_attention_factor(32.0),
       {{0, 1.0},
        {8, 0.05081327259540558},
        {10, 0.019334999844431877},
        {15, 0.00105260219424963},
        {16, 0.0004564839182421565},
        {21, 1.253256959898863e-05},
        {31, 3.023511396804679e-07}}},
      {{.theta = 5e5,
        .yarn = YarnRopeScaling{.factor = 8.0,
                                .original_max_position = 8192.0,
                                .beta_fast = 24.0,
                                .beta_slow = 2.0}},
       128,
       1.25,  // given, not derived
       {{0, 1.0},
        {21, 0.01167440228164196},
        {31, 0.0003338551614433527},
        {32, 0.00017677668074611574},
        {42, 2.2748929040972143e-05},
        {63, 3.068925877869333e-07}}}};
  return records;
}

TEST(Rope, YarnHasTheFrequenciesOfTransformers) {
  for (const YarnRecord& record : yarn_records()) {
    for (const auto& [d, frequency] : record.frequencies) {
      EXPECT_NEAR(rope_frequency(record.params, record.rotary_dim, d) / frequency, 1.0, 2e-6)
          << "factor " << record.params.yarn->factor << ", pair " << d;
    }
    for (int d = 0; d < record.rotary_dim / 2; ++d) {
      const double want = ref::rope_angle(record.params, record.rotary_dim, d, 1);
      EXPECT_NEAR(rope_frequency(record.params, record.rotary_dim, d) / want, 1.0, 1e-14) << d;
    }
  }
  const std::vector<double> attention_factors{1.138629436111989, 1.0857263992561355,
                                              1.3465735902799727, 1.25};
  for (size_t i = 0; i < attention_factors.size(); ++i) {
    EXPECT_DOUBLE_EQ(yarn_records()[i].attention_factor, attention_factors[i]);
  }
  EXPECT_EQ(yarn_attention_factor(0.5), 1.0);
  EXPECT_EQ(yarn_attention_factor(1.0, 3.0, 2.0), 1.0);
}

// A context so short that all pairs turn less than beta_slow times, or that the ramp has no width.
TEST(Rope, YarnOfShortContextsIsThatOfTheDefinition) {
  for (const double original_max_position : {1.0, 6.0, 7.0, 20.0, 200.0}) {
    for (const bool truncate : {false, true}) {
      for (const int rotary_dim : {2, 4, 64}) {
        const RopeParams params{
            .theta = 1e4,
            .yarn = YarnRopeScaling{.factor = 16.0,
                                    .original_max_position = original_max_position,
                                    .truncate = truncate}};
        for (int d = 0; d < rotary_dim / 2; ++d) {
          const double want = ref::rope_angle(params, rotary_dim, d, 1);
          EXPECT_NEAR(rope_frequency(params, rotary_dim, d) / want, 1.0, 1e-14)
              << original_max_position << " " << truncate << " " << rotary_dim << " " << d;
        }
      }
    }
  }
}

TEST(Rope, RefusesAnAttentionFactorOnAGpu) {
  std::vector<float> x(8);
  const std::vector<int32_t> positions{0};
  ExecContext gpu;
  gpu.device = {DeviceType::kCuda, 0};
  const auto on_gpu = [&]<class View>(const View& view) {
    return View(view.raw(), view.dtype(), gpu.device, view.shape(), view.strides());
  };
  const TensorView heads = on_gpu(host_view(x.data(), {1, 1, 8}));
  const ConstTensorView at = on_gpu(ConstTensorView(host_view(positions.data(), {1})));
  const RopeParams params{.attention_factor = 1.5};
  const auto check = [](const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
      EXPECT_STREQ(e.what(), "RopeParams::attention_factor is 1.5, supported on cuda:0: 1");
    }
  };
  check([&] { rope(gpu, heads, at, params); });
}

TEST(Rope, TableIsExactToOneUlpAtAnyPosition) {
  ThreadPool pool(2);
  testing::Mirror here;
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    testing::check_rope_table(testing::context_with(threads), here);
  }
}

template <class T>
class RopeTyped : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(RopeTyped, Types);

TYPED_TEST(RopeTyped, RotatesInPlaceAndNothingElse) {
  ThreadPool pool(3);
  testing::Mirror here;
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    for (int round = 0; round < 20; ++round) {
      testing::check_rope<TypeParam>(testing::context_with(pick<ThreadPool*>({nullptr, &pool})),
                                     here);
    }
  }
}

TEST(Rope, FactorsDivideTheFrequencies) {
  testing::Mirror here;
  testing::check_rope_factors({}, here);
  const std::array<int32_t, 3> positions{0, 7, 1000};
  const std::array<float, 3> factors{1.0f, 2.0f, 0.5f};
  const RopeParams params{.theta = 500.0};
  PoisonedBuffer<float> cos(12), sin(12);
  EXPECT_THROW(rope_table(ExecContext{}, cos.view({3, 4}), sin.view({3, 4}),
                          host_view(positions.data(), {3}), params, host_view(factors.data(), {3})),
               Error);
}

TEST(Rope, TargetsWithFusedMultiplyAddGiveEqualBits) {
  const std::vector<float> before = testing::random_normal<float>(9 * 70);
  const std::vector<int64_t> positions = testing::random_positions(9);
  std::vector<std::vector<float>> results;
  for (const int64_t target : testing::cpu_targets()) {
    if (!testing::has_fused_multiply_add(target)) continue;
    const testing::ScopedCpuTarget scope(target);
    results.push_back(before);
    rope(ExecContext{}, host_view(results.back().data(), {9, 1, 70}),
         host_view(positions.data(), {9}), RopeParams{});
    EXPECT_TRUE(testing::same_bits<float>(results.front(), results.back()));
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

TEST(Rope, NamesWhatIsWrong) {
  std::vector<float> x(2 * 3 * 8), table(2 * 5);
  const std::vector<int32_t> positions{0, 1};
  const TensorView xv = host_view(x.data(), {2, 3, 8}), wide = host_view(table.data(), {2, 5});
  const ConstTensorView at = host_view(positions.data(), {2});
  const ExecContext ctx;
  EXPECT_EQ(message([&] { rope(ctx, xv, at, RopeParams{.rotary_dim = 10}); }),
            "rotary_dim is 10, expected at most head_dim = 8");
  EXPECT_EQ(message([&] { rope(ctx, xv, at, RopeParams{.rotary_dim = 3}); }),
            "rotary_dim is 3, expected an even number");
  EXPECT_EQ(message([&] { rope(ctx, xv, at.narrow(0, 0, 1), RopeParams{}); }),
            "positions.size(0) is 1, expected num_tokens = 2");
  EXPECT_EQ(message([&] { rope(ctx, xv, wide, wide); }),
            "cos.size(1) is 5, expected at most half of head_dim = 8");
  EXPECT_EQ(message([&] { rope(ctx, xv, xv, RopeParams{}); }), "positions has rank 3, expected 1");
  EXPECT_EQ(message([&] { rope_table(ctx, wide, wide, at, RopeParams{.rotary_dim = 8}); }),
            "cos.size(1) is 5, expected rotary_dim / 2 = 4");
  EXPECT_EQ(message([&] { rope(ctx, xv, at, RopeParams{.theta = 0.0}); }),
            "RopeParams::theta is 0, expected > 0");
  EXPECT_EQ(message([&] { rope(ctx, xv, at, RopeParams{.scale = 0.0}); }),
            "RopeParams::scale is 0, expected > 0");
  const auto corrected = [&](const Llama3RopeScaling& llama3) {
    return message([&] { rope(ctx, xv, at, RopeParams{.llama3 = llama3}); });
  };
  EXPECT_EQ(corrected({.factor = 0.0}),
            "Llama3RopeScaling: factor 0 and original_max_position 8192, expected > 0");
  EXPECT_EQ(corrected({.original_max_position = -1.0}),
            "Llama3RopeScaling: factor 8 and original_max_position -1, expected > 0");
  EXPECT_EQ(corrected({.low_freq_factor = 4.0}),
            "Llama3RopeScaling: low_freq_factor 4 must be above 0 and below high_freq_factor 4");
  const auto yarn = [&](const YarnRopeScaling& scaling, double theta = 1e4) {
    return message([&] { rope(ctx, xv, at, RopeParams{.theta = theta, .yarn = scaling}); });
  };
  EXPECT_EQ(yarn({}), "no error");
  EXPECT_EQ(yarn({.factor = -4.0}),
            "YarnRopeScaling: factor -4 and original_max_position 4096, expected finite numbers "
            "above 0");
  EXPECT_EQ(yarn({.original_max_position = NAN}),
            "YarnRopeScaling: factor 1 and original_max_position nan, expected finite numbers "
            "above 0");
  EXPECT_EQ(yarn({.beta_slow = 40.0}),
            "YarnRopeScaling: beta_slow 40 must be above 0 and below beta_fast 32");
  EXPECT_EQ(yarn({}, 1.0), "RopeParams::theta is 1, expected > 1 with YarnRopeScaling");
  EXPECT_EQ(message([&] {
              rope(ctx, xv, at,
                   RopeParams{.llama3 = Llama3RopeScaling{}, .yarn = YarnRopeScaling{}});
            }),
            "RopeParams has llama3 and yarn, expected at most one of them");
  EXPECT_EQ(message([&] { rope_table(ctx, wide, wide, at, RopeParams{.attention_factor = 0.0}); }),
            "RopeParams::attention_factor is 0, expected a finite number above 0");
}

}  // namespace
}  // namespace heddle
