// The table of the C interface on the CPU.
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "capi/test/ops_test_body.h"

namespace heddle::testing {
namespace {

class CApiTable : public ::testing::TestWithParam<Family> {};

TEST_P(CApiTable, DoesWhatCppDoes) {
  const Context two_threads(2);
  std::vector<std::byte> memory(size_t{1} << 20);
  Workspace workspace(memory);
  ExecContext one_thread;
  one_thread.workspace = &workspace;
  Mirror mirror;
  expect_c_is_cpp(GetParam(), {two_threads, one_thread, mirror});
}

INSTANTIATE_TEST_SUITE_P(Ops, CApiTable, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CApiOps, OfTwoContextsRunConcurrently) {
  const Row row = lora_rows().front();
  const auto y_of = [&](const auto& call) {
    Mirror mirror;
    PlacedTensors tensors(row.tensors, mirror);
    call(tensors);
    const auto y = tensors[0].values();
    return std::vector(y.begin(), y.end());
  };
  std::vector<std::byte> memory(size_t{1} << 20);
  Workspace workspace(memory);
  ExecContext ctx;
  ctx.workspace = &workspace;
  const auto want = y_of([&](PlacedTensors& tensors) { row.cpp(ctx, tensors); });
  const auto worker = [&](int* num_equal) {
    const Context context(2);
    for (int round = 0; round < 50; ++round) {
      *num_equal += int{want == y_of([&](PlacedTensors& t) { expect_ok(row.c(context, t)); })};
    }
  };
  int equal[2] = {0, 0};
  std::thread one(worker, &equal[0]), two(worker, &equal[1]);
  one.join();
  two.join();
  EXPECT_EQ(equal[0], 50);
  EXPECT_EQ(equal[1], 50);
}

TEST(CApiOps, NeedTheirWorkspace) {
  const Context poor(1, 0);
  Mirror mirror;
  const Row sample = sampling_rows().front();
  PlacedTensors tensors(sample.tensors, mirror);
  expect_failure(HEDDLE_OUT_OF_MEMORY, "workspace holds 0 bytes", sample.c(poor, tensors));
}

}  // namespace
}  // namespace heddle::testing
