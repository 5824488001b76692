#include "files/percent.h"

#include <gtest/gtest.h>

namespace heddle::files {
namespace {

TEST(PercentDecoded, ReadsCodesAndLeavesWhatIsNone) {
  EXPECT_EQ(percent_decoded("%73q%6C"), "sql");
  EXPECT_EQ(percent_decoded("a%2fb%2Fc"), "a/b/c");
  EXPECT_EQ(percent_decoded("100%"), "100%");
  EXPECT_EQ(percent_decoded("%4"), "%4");
  EXPECT_EQ(percent_decoded("%zz%4g"), "%zz%4g");
  EXPECT_EQ(percent_decoded("%2541"), "%41");  // once
}

}  // namespace
}  // namespace heddle::files
