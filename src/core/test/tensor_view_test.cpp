#include "heddle/core/tensor_view.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/check.h"
#include "heddle/core/workspace.h"

#include "expect_error.h"

namespace heddle {
namespace {

using testing::message_of;

TEST(TensorView, CompactStridesAreRowMajor) {
  std::vector<float> data(24);
  const TensorView view = host_view(data.data(), {2, 3, 4});
  EXPECT_EQ(view.stride(0), 12);
  EXPECT_EQ(view.stride(1), 4);
  EXPECT_EQ(view.stride(2), 1);
  EXPECT_EQ(view.num_elements(), 24);
  const TensorView part = view.narrow(1, 1, 2).narrow(2, 3, 1);
  EXPECT_EQ(part.data<float>(), data.data() + 7);
  EXPECT_EQ(part.size(1), 2);
  EXPECT_EQ(part.stride(1), 4);
}

TEST(TensorView, AbsentAndEmptyAreNotTheSame) {
  EXPECT_FALSE(TensorView());
  EXPECT_TRUE(host_view(static_cast<float*>(nullptr), {0, 4}));
}

TEST(TensorView, RankIsAtMostEight) {
  const std::array<int64_t, 9> shape{1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(message_of([&] { TensorView(nullptr, DType::kFloat32, {}, shape); }),
            "tensor of rank 9, at most 8 is supported");
}

TEST(TensorView, ReadingAnotherTypeNamesBoth) {
  std::vector<float> data(4);
  EXPECT_EQ(message_of([&] { (void)host_view(data.data(), {4}).data<int32_t>(); }),
            "tensor holds f32, read as i32");
}

TEST(CheckShape, NamesTensorAxisAndBothValues) {
  std::vector<float> data(12);
  Dim tokens("num_tokens"), in("in_features");
  check_shape("x", host_view(data.data(), {3, 4}), {&tokens, &in});
  EXPECT_EQ(message_of([&] {
              check_shape("a", host_view(data.data(), {3, 2}), {&tokens, &in});
            }),
            "a.size(1) is 2, expected in_features = 4");
  EXPECT_EQ(message_of([&] {
              check_shape("a", host_view(data.data(), {3}), {&tokens, &in});
            }),
            "a has rank 1, expected 2");
}

TEST(CheckDevice, NamesTensorAndBothDevices) {
  const TensorView x(nullptr, DType::kFloat32, {DeviceType::kCuda, 1}, {0, 4});
  EXPECT_EQ(message_of([&] {
              check_device(ExecContext{}, {{"x", x}});
            }),
            "x is on cuda:1, the context runs on cpu");
}

TEST(Workspace, GivesAlignedPiecesAndTakesThemBack) {
  std::vector<std::byte> buffer(1000);
  Workspace workspace(buffer);
  const float* first = nullptr;
  {
    const Workspace::Scope scope(workspace);
    first = workspace.take<float>(10).data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % Workspace::kAlignment, 0u);
    EXPECT_GE(workspace.take<float>(10).data(), first + 10);
    EXPECT_FALSE(workspace.has_room<float>(1000));
    EXPECT_THROW((void)workspace.take<float>(1000), Error);
    EXPECT_TRUE(workspace.has_room<float>(100));
    EXPECT_EQ(workspace.take<float>(100).size(), 100);
  }
  EXPECT_EQ(workspace.take<float>(10).data(), first);
}

}  // namespace
}  // namespace heddle
