#include "cuda_test.h"

#include "heddle/core/cuda_context.h"

#include "core/device_graph.h"
#include "core/device_pool.h"
#include "core/device_stream.h"
#include "model/test/lora_tables_test_body.h"

namespace heddle::model {
namespace {

class LoraTablesCuda : public testing::CudaTest {};

TEST_F(LoraTablesCuda, AddWhatTheReferenceAdds) {
  const Device device = cuda_context().device;
  const CudaContext context(device, nullptr, LoraTablesCase::workspace_bytes(device));
  const LoraTablesCase adapters;
  for (const DType activations : {DType::kFloat16, DType::kBFloat16}) {
    const LoraForm form = LoraForm::of(device.type, activations);
    for (const bool is_staged : {false, true}) {
      const LoraTables tables = is_staged ? adapters.make_staged(context.exec(), form)
                                          : adapters.make(context.exec(), form);
      if (activations == DType::kFloat16) {
        adapters.expect_the_sums_of_the_reference<half>(context.exec(), tables, 0.01);
      } else {
        adapters.expect_the_sums_of_the_reference<bfloat16>(context.exec(), tables, 0.05);
      }
    }
  }
}

TEST_F(LoraTablesCuda, ManyEntriesChangeAtOnce) {
  const CudaContext context(cuda_context().device, nullptr, 0);
  LoraTablesCase::expect_that_changes_are_made(context.exec());
}

/// Memory is reused by the stream that allocates, after the work of the stream that freed it.
TEST_F(LoraTablesCuda, APoolGivesMemoryInTheOrderOfStreams) {
  const Device device = cuda_context().device;
  const DeviceStream last = make_stream(device), first = make_stream(device);
  const ExecContext taking{.device = device, .stream = first.get()};
  const ExecContext giving{.device = device, .stream = last.get()};
  const DevicePool pool(device);
  constexpr size_t kBytes = size_t{16} << 20;
  const int64_t free = available_bytes(device);
  DeviceEvent given(device);
  for (int i = 0; i < 50; ++i) {
    given.record(giving);
    given.hold(taking);
    const DeviceBytes memory = pool.allocate(taking, last.get(), kBytes);
    std::vector<std::byte> values(kBytes, std::byte(i)), back(kBytes);
    copy_from_host(taking, memory.get(), values);
    copy_to_host(giving, back, memory.get());
    EXPECT_EQ(values, back);
  }
  EXPECT_GE(available_bytes(device), free - static_cast<int64_t>(4 * kBytes));
}

}  // namespace
}  // namespace heddle::model
