// Which kernel a conversion takes on a GPU, without a GPU.
#include "ops/metadata/conversions/select_kernel.h"

#include <sstream>

#include <gtest/gtest.h>

namespace heddle::cuda::metadata {
namespace {

using enum ConversionKernel;

TEST(SelectConversionKernel, GoesByRequestsElementsAndTensors) {
  struct Row {
    ConversionCall call;
    ConversionChoice choice;
  };
  constexpr int kSms = 132;
  constexpr int64_t kShort = int64_t{1024} * kSms;  // the most with one element a thread
  constexpr Row kRows[] = {
      // Nothing to write.
      {{0, 100, true, false, kSms}, {}},
      {{8, 0, true, true, kSms}, {}},
      // Fills alone.
      {{0, 100, true, true, kSms}, {kGeneral, 1, 1}},
      {{1, 1, true, false, kSms}, {kContiguous, 1, 1}},
      {{256, 257, true, false, kSms}, {kContiguous, 1, 2}},
      {{257, 257, true, false, kSms}, {kGeneral, 1, 2}},
      {{256, 257, false, false, kSms}, {kGeneral, 1, 2}},
      {{256, kShort, true, false, kSms}, {kContiguous, 1, 4 * kSms}},
      {{256, kShort + 1, true, false, kSms}, {kContiguous, 8, kSms / 2 + 1}},
      {{256, kShort + 1, false, true, kSms}, {kGeneral, 8, kSms / 2 + 1}},
      {{256, kShort + 1, false, true, kSms + 1}, {kGeneral, 1, 4 * kSms + 1}},
      {{1, int64_t{1} << 33, false, false, kSms}, {kGeneral, 8, 1u << 22}},
  };
  for (const auto& [call, choice] : kRows) {
    EXPECT_EQ(select_conversion_kernel(call), choice) << call.num_seqs << ' ' << call.size;
  }
}

TEST(SelectConversionKernel, PrintsItsChoice) {
  std::ostringstream line;
  line << select_conversion_kernel({4, 600, true, false, 132}) << ", "
       << select_conversion_kernel({});
  EXPECT_EQ(line.str(), "contiguous per_thread=1 blocks=3, none per_thread=0 blocks=0");
}

}  // namespace
}  // namespace heddle::cuda::metadata
