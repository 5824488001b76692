#include "heddle/ops/metadata.h"

#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

TEST_F(CApiCuda, MetadataOfABatch) {
  const DeviceBuffer<int32_t> tables(std::vector<int32_t>{1, 2, 3, 4, 5, 6}), ragged(4),
      positions(3);
  const DeviceBuffer<int64_t> input(std::vector<int64_t>{1, 2}), cache(std::vector<int64_t>{1, 0});
  const OnDevice c_tables(tables, {2, 3}), c_ragged(ragged, {4}), c_positions(positions, {3});
  const OnDevice c_input(input, {2}), c_cache(cache, {2});
  expect_ok(heddle_block_tables_to_ragged(context_, c_ragged.get(), c_tables.get(), c_input.get(),
                                          c_cache.get(), nullptr, nullptr));
  EXPECT_EQ(ragged.download(), (std::vector<int32_t>{1, 2, 4, 5}));
  heddle_prepare_batch_outputs outputs;
  heddle_prepare_batch_inputs inputs;
  heddle_prepare_batch_outputs_init(&outputs);
  heddle_prepare_batch_inputs_init(&inputs);
  inputs.cache_lengths = c_cache.get();
  inputs.input_lengths = c_input.get();
  outputs.positions = c_positions.get();
  expect_ok(heddle_prepare_batch(context_, &outputs, &inputs));
  EXPECT_EQ(positions.download(), (std::vector<int32_t>{1, 0, 1}));
  EXPECT_TRUE(ragged.guards_intact() && positions.guards_intact());
}

}  // namespace
}  // namespace heddle::testing
