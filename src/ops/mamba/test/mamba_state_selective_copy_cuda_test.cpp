// mamba_state_selective_copy on a GPU: the bodies of the CPU's tests, states far apart in alignment
// and number, and graphs.
#include <vector>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"

#include "device_buffer.h"
#include "device_mirror.h"
#include "ops/mamba/mamba_state_selective_copy_launch.h"
#include "ops/mamba/test/mamba_state_selective_copy_test_body.h"
#include "small_sizes.h"
#include "testing/graph_timing_cuda.h"

namespace heddle::testing {
namespace {

class MambaCopyCuda : public CudaTest {
 protected:
  DeviceMirror on_;
};

TEST_F(MambaCopyCuda, EqualsTheReference) {
  for (int round = 0; round < small_or(20, 200); ++round) {
    DeviceMirror on(round % 2 == 0 ? DeviceMirror::Guards::kBoth : DeviceMirror::Guards::kFlush);
    expect_random_copies(cuda_context(), on);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(MambaCopyCuda, LargeStatesAreCutIntoPieces) {
  expect_large_states_are_cut_into_pieces(cuda_context(), on_);
}

TEST_F(MambaCopyCuda, TakesAnyNumberOfRequests) {
  expect_any_number_of_requests(cuda_context(), on_, small_or(700, 70000));
}

TEST_F(MambaCopyCuda, TakesTheStateBehindTheLastAcceptedToken) {
  expect_the_state_behind_the_last_accepted_token(cuda_context(), on_);
}

TEST_F(MambaCopyCuda, LeavesPrefillRequestsMissingSlotsAndFurtherLayers) {
  expect_prefill_missing_slots_and_further_layers_left(cuda_context(), on_);
}

TEST_F(MambaCopyCuda, TheContextTellsOfSlotsPastTheEndAndOfNoOthers) {
  CudaContext context({DeviceType::kCuda, current_device()}, nullptr, 0);
  Example example;
  example.slots = {-1, 0};
  example.accepted = {1, 9};  // clamped
  example.run(context.exec(), on_, example.state());
  EXPECT_FALSE(context.poll().has_value());
  example.slots = {7, 1};
  example.prefill = {1, 0};  // of which nothing is copied
  example.run(context.exec(), on_, example.state());
  EXPECT_FALSE(context.poll().has_value());
  for (const int64_t slot : {int64_t{2}, int64_t{1} << 40}) {
    example = Example();
    example.slots = {1, slot};
    example.run(context.exec(), on_, example.state());
    EXPECT_EQ(example.current, (std::vector<float>{-1, -1, 110, 111, -1, -1, 1110, 1111}));
    const auto fault = context.poll();
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->op, "mamba_state_selective_copy");
    EXPECT_EQ(fault->array, "state_idx");
    EXPECT_EQ(fault->row, 1);
    EXPECT_EQ(fault->value, slot);
    EXPECT_FALSE(context.poll().has_value());
  }
}

TEST_F(MambaCopyCuda, NothingToCopyIsLegal) {
  expect_nothing_to_copy_is_legal(cuda_context(), on_);
}

TEST_F(MambaCopyCuda, ValidationNamesRowAndValue) {
  expect_validation_names_row_and_value(cuda_context(), on_);
}

TEST_F(MambaCopyCuda, AReplaySeesCountsSlotsAndStatesThatChangedInPlace) {
  const int64_t n = 6, layers = 3, drafts = 2, conv = 48, scan = 5000;
  const auto floats = [&](int64_t count) { return random_normal<float>(size_t(count)); };
  const DeviceStream stream;
  DeviceBuffer<float> conv_to(floats(layers * n * conv)), scan_to(floats(layers * n * scan));
  DeviceBuffer<float> conv_from(floats(layers * n * (drafts + 1) * conv));
  DeviceBuffer<float> scan_from(floats(layers * n * (drafts + 1) * scan));
  DeviceBuffer<int32_t> prefill(size_t{n}), slots(size_t{n}), active(1);
  DeviceBuffer<int64_t> accepted(size_t{n});
  const std::vector<MambaState> states{
      {conv_to.view({layers, n, conv}), conv_from.view({layers, n, drafts + 1, conv})},
      {scan_to.view({layers, n, scan}), scan_from.view({layers, n, drafts + 1, scan})}};
  const auto call = [&](const ExecContext& ctx) {
    mamba_state_selective_copy(ctx, states, prefill.view({n}), slots.view({n}), accepted.view({n}),
                               layers, active.view({1}));
  };
  const auto change = [&] {
    const Requests r(n, n, drafts);
    prefill.upload(std::vector<int32_t>(r.prefill.begin(), r.prefill.end()));
    slots.upload(std::vector<int32_t>(r.slots.begin(), r.slots.end()));
    accepted.upload(r.accepted);
    active.upload(std::vector<int32_t>{static_cast<int32_t>(random_int(1, n))});
    conv_from.upload(floats(layers * n * (drafts + 1) * conv));
    scan_from.upload(floats(layers * n * (drafts + 1) * scan));
  };
  change();
  call(cuda_context(stream.get()));  // loads the kernel
  stream.wait();
  const RecordedGraph graph(stream.get(), [&] { call(cuda_context(stream.get())); });
  for (int round = 0; round < small_or(3, 20); ++round) {
    change();
    const auto conv_start = conv_to.download(), scan_start = scan_to.download();
    call(cuda_context());
    const auto conv_want = conv_to.download(), scan_want = scan_to.download();
    conv_to.upload(conv_start);
    scan_to.upload(scan_start);
    graph.launch(stream.get());
    stream.wait();
    ASSERT_EQ(conv_to.download(), conv_want) << "round " << round;
    ASSERT_EQ(scan_to.download(), scan_want) << "round " << round;
  }
  EXPECT_TRUE(conv_to.guards_intact() && scan_to.guards_intact());
}

TEST(MambaCopyWords, AreAsWideAsAllAddressesAndStepsAllow) {
  StateCopy copy{};
  EXPECT_EQ(cuda::mamba::word_bytes_of(copy), 16);
  copy.intermediate_token_step = 24;
  EXPECT_EQ(cuda::mamba::word_bytes_of(copy), 4);
  copy.current_slot_step = 6;
  EXPECT_EQ(cuda::mamba::word_bytes_of(copy), 2);
  copy.current = reinterpret_cast<std::byte*>(uintptr_t{33});
  EXPECT_EQ(cuda::mamba::word_bytes_of(copy), 1);
}

}  // namespace
}  // namespace heddle::testing
