#include "core/kernel_log.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

struct Choice {
  int blocks;
  friend std::ostream& operator<<(std::ostream& out, const Choice& c) {
    return out << "split blocks=" << c.blocks;
  }
};

/// Runs in a process of its own, since the environment is read once.
[[noreturn]] void log_with(const char* value) {
  setenv("HEDDLE_LOG_KERNELS", value, 1);
  log_choice("batch_decode", Choice{4});
  log_choice("batch_decode", Choice{8}, "seqs=2");
  std::exit(0);
}

TEST(KernelLog, PrintsALineACallWhereTheEnvironmentAsks) {
  EXPECT_EXIT(
      log_with("1"), ::testing::ExitedWithCode(0),
      "^heddle: batch_decode split blocks=4\nheddle: batch_decode split blocks=8 seqs=2\n$");
}

TEST(KernelLog, IsSilentOtherwise) {
  EXPECT_EXIT(log_with("0"), ::testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(log_with(""), ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace heddle
