// Which kernel a row of rms_norm takes on a GPU, without a GPU.
#include "ops/norm/select_kernel.h"

#include <sstream>

#include <gtest/gtest.h>

namespace heddle::cuda::norm {
namespace {

using enum RmsNormKernel;

TEST(SelectRmsNormKernel, GoesByTheWidth) {
  struct Row {
    int64_t width;
    RmsNormKernel aligned, other;
  };
  constexpr Row kRows[] = {
      {8, kSeveralRows1, kSeveralRows4},
      {256, kSeveralRows1, kSeveralRows4},
      {257, kSeveralRows4, kSeveralRows4},
      {1024, kSeveralRows4, kSeveralRows4},
      {1025, kOneRow2, kWide},
      {4096, kOneRow2, kWide},
      {4097, kOneRow4, kWide},
      {16384, kOneRow4, kWide},
      {16385, kWide, kWide},
      {int64_t{1} << 33, kWide, kWide},
  };
  for (const auto& [width, aligned, other] : kRows) {
    EXPECT_EQ(select_rms_norm_kernel(width, true), (RmsNormChoice{aligned, true})) << width;
    EXPECT_EQ(select_rms_norm_kernel(width, false), (RmsNormChoice{other, false})) << width;
  }
}

TEST(SelectRmsNormKernel, PrintsItsChoice) {
  std::ostringstream line;
  line << select_rms_norm_kernel(4096, true) << ", " << select_rms_norm_kernel(5000, false);
  EXPECT_EQ(line.str(), "one_row_2 vectors, wide elements");
}

}  // namespace
}  // namespace heddle::cuda::norm
