#include <vector>

#include <gtest/gtest.h>

#include "exec_context.h"
#include "ops/mamba/test/mamba_state_selective_copy_test_body.h"

namespace heddle::testing {
namespace {

TEST(MambaStateSelectiveCopy, EqualsTheReference) {
  Mirror on;
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(static_cast<int>(random_int(1, 3)));
    expect_random_copies(context_with(&pool), on);
  }
}

TEST(MambaStateSelectiveCopy, LargeStatesAreCutIntoPieces) {
  Mirror on;
  ThreadPool pool(3);
  expect_large_states_are_cut_into_pieces(context_with(&pool), on);
}

TEST(MambaStateSelectiveCopy, TakesAnyNumberOfRequests) {
  Mirror on;
  ThreadPool pool(3);
  expect_any_number_of_requests(context_with(&pool), on, 70000);
}

TEST(MambaStateSelectiveCopy, TakesTheStateBehindTheLastAcceptedToken) {
  Mirror on;
  expect_the_state_behind_the_last_accepted_token({}, on);
}

TEST(MambaStateSelectiveCopy, LeavesPrefillRequestsMissingSlotsAndFurtherLayers) {
  Mirror on;
  expect_prefill_missing_slots_and_further_layers_left({}, on);
}

TEST(MambaStateSelectiveCopy, NothingToCopyIsLegal) {
  Mirror on;
  expect_nothing_to_copy_is_legal({}, on);
}

TEST(MambaStateSelectiveCopy, StridesOfAnEmptyStateMeanNothing) {
  Example example;
  const Ints shape{2, 2, 4, 0}, from_shape{2, 2, 2, 4, 0};
  const Ints strides{9, 5, 7, 3}, from_strides{9, 5, 2, 7, 3};
  const MambaState empty{
      {reinterpret_cast<std::byte*>(example.current.data()), DType::kFloat32, {}, shape, strides},
      {reinterpret_cast<std::byte*>(example.intermediate.data()),
       DType::kFloat32,
       {},
       from_shape,
       from_strides}};
  const RandomWidth indices({0, 1});
  Mirror on;
  mamba_state_selective_copy({}, {&empty, 1}, indices.view(on), indices.view(on), indices.view(on),
                             2);
  EXPECT_EQ(example.current, std::vector<float>(8, -1.0f));
}

TEST(MambaStateSelectiveCopy, ValidationNamesRowAndValue) {
  Mirror on;
  expect_validation_names_row_and_value({}, on);
}

TEST(MambaStateSelectiveCopy, ErrorsNameTensorAxisAndValues) {
  Mirror on;
  Example example;
  const MambaState good = example.state();
  MambaState state = good;
  std::vector<half> halves(16);
  state.intermediate = host_view(halves.data(), {2, 2, 2, 2});
  expect_invalid({"intermediate_states[0] is f16, expected f32 as current_states[0]"},
                 [&] { example.run({}, on, state); });
  state.intermediate = host_view(example.intermediate.data(), {2, 2, 2});
  expect_invalid({"intermediate_states[0] has rank 3, expected 4"},
                 [&] { example.run({}, on, state); });
  state.intermediate = host_view(example.intermediate.data(), {2, 1, 2, 2});
  expect_invalid({"intermediate_states[0].size(1) is 1, expected current_states[0].size(1) = 2"},
                 [&] { example.run({}, on, state); });
  state.intermediate = host_view(example.intermediate.data(), {2, 2, 2, 1});
  expect_invalid({"intermediate_states[0].size(3) is 1, expected current_states[0].size(2) = 2"},
                 [&] { example.run({}, on, state); });
  state = good;
  const Ints shape{2, 2, 2, 2}, strides{8, 4, 1, 2};
  state.intermediate = {good.intermediate.raw(), DType::kFloat32, {}, shape, strides};
  expect_invalid({"intermediate_states[0].stride(3) is 2, expected 1"},
                 [&] { example.run({}, on, state); });
  expect_invalid({"num_layers is 3, expected at most current_states[0].size(0) = 2"},
                 [&] { example.run({}, on, good, 3); });
  expect_invalid({"num_layers is -1"}, [&] { example.run({}, on, good, -1); });
  example.slots = {0};
  expect_invalid({"state_idx.size(0) is 1, expected num_requests = 2"},
                 [&] { example.run({}, on, good); });
  const RandomWidth none({});
  const std::vector<MambaState> nine(9, good);
  expect_invalid({"states has 9 entries, at most 8"}, [&] {
    mamba_state_selective_copy({}, nine, none.view(on), none.view(on), none.view(on), 2);
  });
}

}  // namespace
}  // namespace heddle::testing
