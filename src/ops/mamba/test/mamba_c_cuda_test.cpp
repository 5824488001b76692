#include "heddle/ops/mamba.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

// One layer, two slots, S = 1: request 0 has slot 1 and an accepted draft, request 1 none, and
// request 2 is padding.
TEST_F(CApiCuda, MambaStates) {
  const std::vector<float> conv = random_normal<float>(2 * 2 * 3),
                           scan = random_normal<float>(2 * 2 * 5);
  const DeviceBuffer<float> conv_from(conv), scan_from(scan);
  const DeviceBuffer<float> conv_to(std::vector<float>(2 * 3)), scan_to(std::vector<float>(2 * 5));
  const DeviceBuffer<int32_t> prefill(std::vector{0, 0, 0}), active(std::vector{2});
  const DeviceBuffer<int64_t> slots(std::vector<int64_t>{1, -1, 0});
  const DeviceBuffer<int64_t> accepted(std::vector<int64_t>{1, 0, 1});
  const OnDevice to[] = {{conv_to, {1, 2, 3}}, {scan_to, {1, 2, 5}}};
  const OnDevice from[] = {{conv_from, {1, 2, 2, 3}}, {scan_from, {1, 2, 2, 5}}};
  DLTensor* const current[] = {to[0].get(), to[1].get()};
  const DLTensor* const intermediate[] = {from[0].get(), from[1].get()};
  const OnDevice c_prefill(prefill, {3}), c_slots(slots, {3}), c_accepted(accepted, {3});
  const OnDevice c_active(active, {1});
  const heddle_count num_active{.value = 0, .on_device = c_active.get()};
  expect_ok(heddle_mamba_state_selective_copy(context_, current, intermediate, 2, c_prefill.get(),
                                              c_slots.get(), c_accepted.get(), 1, &num_active));
  std::vector<float> conv_want(2 * 3), scan_want(2 * 5);
  std::copy_n(conv.begin() + 3 * 3, 3, conv_want.begin() + 3);
  std::copy_n(scan.begin() + 3 * 5, 5, scan_want.begin() + 5);
  EXPECT_EQ(conv_to.download(), conv_want);
  EXPECT_EQ(scan_to.download(), scan_want);
  EXPECT_TRUE(conv_to.guards_intact() && scan_to.guards_intact());
}

}  // namespace
}  // namespace heddle::testing
