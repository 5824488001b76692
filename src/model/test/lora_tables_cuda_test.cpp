#include "cuda_test.h"

#include "heddle/core/cuda_context.h"

#include "model/test/lora_tables_test_body.h"

namespace heddle::model {
namespace {

class LoraTablesCuda : public testing::CudaTest {};

TEST_F(LoraTablesCuda, AddWhatTheReferenceAdds) {
  const Device device = cuda_context().device;
  const CudaContext context(device, nullptr, LoraTablesCase::workspace_bytes(device));
  const LoraTablesCase adapters;
  for (const DType activations : {DType::kFloat16, DType::kBFloat16}) {
    const LoraTables tables = adapters.make(context.exec(), LoraForm::of(device.type, activations));
    if (activations == DType::kFloat16) {
      adapters.expect_the_sums_of_the_reference<half>(context.exec(), tables, 0.01);
    } else {
      adapters.expect_the_sums_of_the_reference<bfloat16>(context.exec(), tables, 0.05);
    }
  }
}

}  // namespace
}  // namespace heddle::model
