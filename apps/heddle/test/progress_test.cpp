#include "generate/progress.h"

#include <gtest/gtest.h>

namespace heddle::app {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Progress::Clock::time_point kBegin = Progress::Clock::now();

EngineStats stats_of(int64_t num_tokens, double time) {
  EngineStats stats;
  stats.generated_tokens = num_tokens;
  stats.prefill_seconds = time / 4;
  stats.decode_seconds = 3 * time / 4;
  return stats;
}

TEST(Progress, ALineAMinuteWhereThereIsNoTerminal) {
  Progress progress(false, 400, kBegin);
  EXPECT_EQ(progress.update(10, stats_of(10, 1), kBegin + seconds(59)), "");
  EXPECT_EQ(progress.update(100, stats_of(600, 60), kBegin + seconds(60)),
            "heddle: 100 of 400 rows, 10 tokens/s, 3:00 left\n");
  EXPECT_EQ(progress.update(200, stats_of(600, 60), kBegin + seconds(119)), "");
  EXPECT_EQ(progress.update(200, stats_of(1300, 120), kBegin + seconds(130)),
            "heddle: 200 of 400 rows, 11 tokens/s, 2:10 left\n");
  EXPECT_STREQ(progress.end(), "");
}

TEST(Progress, ALineThatIsWrittenOverOnATerminal) {
  Progress progress(true, 100000, kBegin);
  EXPECT_EQ(progress.update(0, {}, kBegin + milliseconds(199)), "");
  EXPECT_EQ(progress.update(0, {}, kBegin + milliseconds(200)),
            "\r\033[K0 of 100000 rows, 0 tokens/s");
  EXPECT_EQ(progress.update(1, stats_of(5, 0.5), kBegin + seconds(1)),
            "\r\033[K1 of 100000 rows, 10 tokens/s, 27:46:39 left");
  EXPECT_STREQ(progress.end(), "\r\033[K");
}

TEST(Progress, OfAPipeTheEndIsNotKnown) {
  Progress progress(false, std::nullopt, kBegin);
  EXPECT_EQ(progress.update(7, stats_of(70, 7), kBegin + seconds(60)),
            "heddle: 7 rows, 10 tokens/s\n");
}

}  // namespace
}  // namespace heddle::app
