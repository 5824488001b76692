#include "expect_error.h"
#include "ops/linear_site/test/packed_site_test_body.h"

namespace heddle::testing {
namespace {

template <class T>
class PackedSite : public ::testing::Test {
 protected:
  Mirror mirror_;
  LoraRun run_{.ctx = {}, .mirror = mirror_};
};
using Types = ::testing::Types<half, bfloat16>;
TYPED_TEST_SUITE(PackedSite, Types);

TYPED_TEST(PackedSite, IsTheProductOfEveryFormat) {
  for (const WeightType type : kBlockTypes) {
    HostSite<TypeParam> site(random_packed_shape(type, random_int(1, small_or(3, 9))));
    site.run(this->run_, LinearPath::kDecode);
    site.expect_right();
  }
}

TYPED_TEST(PackedSite, HasTheBitsOfLinear) {
  const int64_t in = 512, out = 40, rows = 3;
  HostSite<TypeParam> site(
      {.rows = rows, .in = in, .outs = {out}, .has_float_y = true, .formats = {WeightType::kQ4K}});
  site.run(this->run_, LinearPath::kDecode);
  std::vector<float> x(size_t(rows * in)), y(size_t(rows * out));
  for (int64_t i = 0; i < rows * in; ++i) {
    x[size_t(i)] = to_float(site.x[size_t(i / in * site.x_stride + i % in)]);
  }
  linear({}, host_view(y.data(), {rows, out}), host_view(x.data(), {rows, in}),
         site.packed[0]->view());
  EXPECT_TRUE(same_bits<float>(site.y32, y));
}

TEST(PackedSiteErrors, NameWhatIsWrong) {
  std::vector<bfloat16> x(2 * 32), w(8 * 32), y(2 * 8);
  const OwnedWeight weight(WeightType::kQ4_0, 8, 32);
  const auto call = [&](const LinearSlice& slice) {
    linear_site({}, {&slice, 1}, host_view(x.data(), {2, 32}), LinearPath::kDecode);
  };
  const auto refused = [&](const char* text, const LinearSlice& slice) {
    expect_error(ErrorCode::kInvalidArgument, {text}, [&] { call(slice); });
  };
  const TensorView out = host_view(y.data(), {2, 8});
  const PackedWeight good = weight.view();
  refused("slices[0].weight and slices[0].packed are both given",
          {.y = out, .weight = host_view(w.data(), {8, 32}), .packed = good});
  PackedWeight wrong = good;
  wrong.in_features = 64;
  refused("slices[0].packed.in_features is 64, expected in_features = 32",
          {.y = out, .packed = wrong});
  wrong = good;
  wrong.out_features = 9;
  refused("slices[0].y.size(1) is 8, expected out_features = 9", {.y = out, .packed = wrong});
  wrong = good;
  wrong.type = WeightType::kBF16;
  refused("slices[0].packed is BF16, expected quantised blocks", {.y = out, .packed = wrong});
  wrong = good;
  wrong.data = nullptr;
  refused("slices[0].packed [8, 32] has no data", {.y = out, .packed = wrong});
  wrong = good;
  wrong.data += 16;
  refused("slices[0].packed.data is not a multiple of 64", {.y = out, .packed = wrong});
}

}  // namespace
}  // namespace heddle::testing
