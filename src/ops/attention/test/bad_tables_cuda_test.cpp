// Wrong page tables on a GPU: rows that use them are NaN or not stored, the context reports them,
// and no other row changes.
#include "cuda_test.h"
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"

#include "device_mirror.h"
#include "ops/attention/test/bad_tables_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

class BadTablesOf : public CudaTestWith<TableOp> {};

TEST_P(BadTablesOf, SpoilTheirRowsAloneAndAreTold) {
  const Device device{DeviceType::kCuda, current_device()};
  CudaContext context(device, nullptr, batch_decode_workspace_bytes(device, 140, 6, 128));
  const auto take = [&] { return context.poll(); };
  for (const auto guards : {DeviceMirror::Guards::kBoth, DeviceMirror::Guards::kFlush}) {
    DeviceMirror mirror(guards);
    const int share = guards == DeviceMirror::Guards::kBoth ? 4900 : 100;
    check_bad_tables<half>(GetParam(), context.exec(), mirror, small_or(48, share), take);
    check_bad_tables<bfloat16>(GetParam(), context.exec(), mirror, small_or(48, share), take);
    check_bad_tables<bfloat16, float8_e4m3>(GetParam(), context.exec(), mirror, small_or(48, share),
                                            take);
  }
}

TEST_P(BadTablesOf, AreHarmlessWithoutARecord) {
  DeviceMirror mirror(DeviceMirror::Guards::kFlush);
  const ExecContext ctx = cuda_context();
  ASSERT_EQ(ctx.faults, nullptr);
  check_bad_tables<half>(GetParam(), ctx, mirror, small_or(16, 64),
                         []() -> std::optional<Fault> { return std::nullopt; });
}

INSTANTIATE_TEST_SUITE_P(Ops, BadTablesOf, ::testing::ValuesIn(kTableOps),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace heddle::testing
