// The main of every test program: prints the seed of its random data and the instruction sets that
// tests of the CPU run in.
#include <cstdlib>
#include <iostream>
#include <random>

#include <gtest/gtest.h>

#include "isa.h"
#include "random.h"

namespace heddle::testing {
namespace {

uint64_t choose_seed() {
  const char* given = std::getenv("HEDDLE_TEST_SEED");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
}

uint64_t& run_seed() {
  static uint64_t seed = choose_seed();
  return seed;
}

void print_seed() { std::cout << "HEDDLE_TEST_SEED=" << run_seed() << "\n"; }

/// Seeds the generator anew before each test, so that a test alone draws what it draws among
/// others, and says at each failure which seed repeats it. Of --gtest_repeat each run has a seed of
/// its own.
class SeedEachTest : public ::testing::EmptyTestEventListener {
  void OnTestIterationStart(const ::testing::UnitTest&, int iteration) override {
    if (iteration == 0) return;
    run_seed() = choose_seed();
    print_seed();
  }
  void OnTestStart(const ::testing::TestInfo&) override { rng().seed(run_seed()); }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    std::cout << test.test_suite_name() << "." << test.name()
              << " failed; the same data: HEDDLE_TEST_SEED=" << run_seed() << std::endl;
  }
};

}  // namespace

std::mt19937_64& rng() {
  static std::mt19937_64 generator(run_seed());
  return generator;
}

}  // namespace heddle::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  heddle::testing::print_seed();
  std::cout << "CPU targets:";
  for (const int64_t target : heddle::testing::cpu_targets()) {
    std::cout << " " << heddle::testing::cpu_target_name(target);
  }
  std::cout << "\n";
  ::testing::UnitTest::GetInstance()->listeners().Append(new heddle::testing::SeedEachTest);
  return RUN_ALL_TESTS();
}
