#include "load_progress.h"

#include <gtest/gtest.h>

namespace heddle::app {
namespace {

using std::chrono::milliseconds;

TEST(LoadProgress, ShowsNothingInTheFirstSecond) {
  const LoadProgress::Clock::time_point begin{};
  LoadProgress progress(begin, "loading");
  EXPECT_EQ(progress.update(1, 100, begin + milliseconds(999)), "");
  EXPECT_STREQ(progress.end(), "");
}

TEST(LoadProgress, WritesOverItsLineTenTimesASecond) {
  const LoadProgress::Clock::time_point begin{};
  LoadProgress progress(begin, "loading");
  EXPECT_EQ(progress.update(1'500'000'000, 3'000'000'000, begin + milliseconds(1000)),
            "\r\033[Kloading [" + std::string(15, '#') + std::string(15, ' ') + "] 50 % of 3.0 GB");
  EXPECT_STREQ(progress.end(), "\r\033[K");
  EXPECT_EQ(progress.update(2'000'000'000, 3'000'000'000, begin + milliseconds(1099)), "");
  EXPECT_EQ(progress.update(3'000'000'000, 3'000'000'000, begin + milliseconds(1100)),
            "\r\033[Kloading [" + std::string(30, '#') + "] 100 % of 3.0 GB");
}

}  // namespace
}  // namespace heddle::app
