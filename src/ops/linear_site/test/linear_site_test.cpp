#include "heddle/config.h"

#include "exec_context.h"
#include "expect_error.h"
#include "ops/linear_site/test/linear_site_test_body.h"
#include "ops/linear_site/test/site_pairs_test_body.h"

namespace heddle::testing {
namespace {

template <class T>
class LinearSite : public ::testing::Test {
 protected:
  Mirror mirror_;
  LoraRun run_{.ctx = {}, .mirror = mirror_};
};
using Types = ::testing::Types<half, bfloat16>;
TYPED_TEST_SUITE(LinearSite, Types);

TYPED_TEST(LinearSite, IsTheProductWithTheAdaptersOfEachRow) {
  for (int i = 0; i < small_or(3, 12); ++i) {
    HostSite<TypeParam> site(random_site_shape(small_or(6, 20)));
    site.run(this->run_, kLinearPaths[i % 2]);
    site.expect_right();
  }
}

TYPED_TEST(LinearSite, ARowHasItsBitsInAnyBatch) {
  HostSite<TypeParam> site(
      {.rows = 40, .in = 200, .outs = {70, 33}, .max_rank = 16, .has_bias = true});
  site.run(this->run_, LinearPath::kDecode);
  const HostSite<TypeParam> all = site;
  for (const LinearPath path : kLinearPaths) {  // on the CPU the same
    for (const int64_t rows : {1, 2, 7, 39}) {
      const int64_t first = random_int(0, 40 - rows);
      site.clear();
      site.run(this->run_, path, first, rows);
      for (int64_t row = first; row < first + rows; ++row) EXPECT_EQ(site.bits(row), all.bits(row));
    }
  }
}

TYPED_TEST(LinearSite, PairsAddAllAdapters) {
  const SiteShape shape{.rows = 9, .in = 72, .outs = {40, 17}, .max_rank = 16, .has_bias = true};
  expect_pairs_add_all_adapters<TypeParam>(shape, this->run_, LinearPath::kDecode);
}

TYPED_TEST(LinearSite, OnePairHasTheBitsOfAnId) {
  const SiteShape shape{.rows = 9, .in = 72, .outs = {40, 17}, .max_rank = 16, .has_bias = true};
  expect_one_pair_has_the_bits_of_an_id<TypeParam>(
      shape, this->run_, LinearPath::kDecode,
      [&](HostSite<TypeParam>& site) { site.run(this->run_, LinearPath::kDecode); });
}

/// The call ends before it looks at memory.
TEST(LinearSiteErrors, NameRowsPastTheLimitOfAGpu) {
  constexpr int64_t kRows = 65537;
  ExecContext ctx;
  ctx.device = {DeviceType::kCuda, 0};
  const auto nowhere = [&](int64_t rows, int64_t columns) {
    return TensorView(reinterpret_cast<std::byte*>(uintptr_t{256}), DType::kBFloat16, ctx.device,
                      {rows, columns});
  };
  const LinearSlice slice{.y = nowhere(kRows, 8), .weight = nowhere(8, 16)};
  for (const LinearPath path : kLinearPaths) {
    expect_error(kWithCuda ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported,
                 {kWithCuda ? "x.size(0) is 65537, linear_site takes at most 65536 rows on cuda:0"
                            : "linear_site: no implementation for cuda:0"},
                 [&] {
                   linear_site(ctx, {&slice, 1}, nowhere(kRows, 16), path);
                 });
  }
}

TEST(LinearSiteErrors, NameWhatIsWrong) {
  std::vector<bfloat16> x(2 * 16), w(8 * 16), y(2 * 8);
  std::vector<half> other(8 * 16);
  const ExecContext ctx;
  const auto call = [&](const TensorView& out, const ConstTensorView& weight) {
    const LinearSlice slice{.y = out, .weight = weight};
    linear_site(ctx, {&slice, 1}, host_view(x.data(), {2, 16}), LinearPath::kDecode);
  };
  const TensorView out = host_view(y.data(), {2, 8});
  const auto refused = [](ErrorCode code, const char* text, const auto& run) {
    expect_error(code, {text}, run);
  };
  refused(ErrorCode::kUnsupported, "slices[0].weight", [&] {
    call(out, host_view(other.data(), {8, 16}));
  });
  refused(ErrorCode::kInvalidArgument, "slices[0].weight.size(1) is 15, expected in_features = 16",
          [&] {
            call(out, host_view(w.data(), {8, 15}));
          });
  refused(ErrorCode::kInvalidArgument, "slices[0].y.size(0) is 1, expected num_tokens = 2", [&] {
    call(host_view(y.data(), {1, 8}), host_view(w.data(), {8, 16}));
  });
  refused(ErrorCode::kInvalidArgument, "path is 7", [&] {
    const LinearSlice slice{.y = out, .weight = host_view(w.data(), {8, 16})};
    linear_site(ctx, {&slice, 1}, host_view(x.data(), {2, 16}), LinearPath{7});
  });
  refused(ErrorCode::kInvalidArgument, "0 slices", [&] {
    linear_site(ctx, {}, host_view(x.data(), {2, 16}), LinearPath::kDecode);
  });
  refused(ErrorCode::kInvalidArgument, "workspace", [&] {
    call(out, host_view(w.data(), {8, 16}));
  });
}

}  // namespace
}  // namespace heddle::testing
