// The record of wrong indices: the first of many threads is kept, told once, also of a graph.
#include <optional>
#include <string>

#include "cuda/check.h"
#include "cuda/fault_cuda.h"
#include "cuda_test.h"
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"

#include "device_memory.h"
#include "expect_error.h"

namespace heddle::testing {
namespace {

/// Threads below num_wrong meet a fault: row number, value -number.
__global__ void meet_faults(FaultRecord* faults, int num_wrong) {
  const int number = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (number < num_wrong) cuda::report_fault(faults, "meet_faults", "slots", number, -number);
}
void launch(const ExecContext& ctx, int num_wrong) {
  meet_faults<<<64, 256, 0, ctx.stream>>>(ctx.faults, num_wrong);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}
Device device() { return {DeviceType::kCuda, current_device()}; }

class FaultTest : public CudaTest {};

TEST_F(FaultTest, TheFirstIsKeptWholeAndToldOnce) {
  CudaContext context(device(), nullptr, 0, 0);
  EXPECT_NO_THROW(context.check());
  EXPECT_FALSE(context.poll().has_value());
  for (int round = 0; round < 20; ++round) {
    launch(context.exec(), 0);
    EXPECT_NO_THROW(context.check());
    launch(context.exec(), 10000);
    launch(context.exec(), 5);
    HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
    const std::optional<Fault> fault = context.poll();
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->op, "meet_faults");
    EXPECT_EQ(fault->array, "slots");
    EXPECT_TRUE(fault->row >= 0 && fault->row < 10000) << fault->row;
    EXPECT_EQ(fault->value, -fault->row);
    EXPECT_FALSE(context.poll().has_value());
  }
}

TEST_F(FaultTest, CheckWaitsAndThrows) {
  CudaContext context(device(), nullptr, 0, 0);
  launch(context.exec(), 1);
  expect_invalid({"meet_faults: slots holds 0 for row 0, which is out of range"},
                 [&] { context.check(); });
  EXPECT_NO_THROW(context.check());
}

TEST_F(FaultTest, AGraphTellsAtEachReplayAndItsCaptureIsNotDisturbed) {
  const DeviceStream stream;
  CudaContext context(device(), stream.get(), 0, 0);
  launch(context.exec(), 1);
  stream.wait();
  HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  launch(context.exec(), 3);
  EXPECT_THROW(context.check(), Error);  // of the call before the capture
  EXPECT_NO_THROW(context.check());
  EXPECT_FALSE(context.poll().has_value());
  cudaGraph_t graph = nullptr;
  HEDDLE_CUDA_CHECK(cudaStreamEndCapture(stream.get(), &graph));
  cudaGraphExec_t replay = nullptr;
  HEDDLE_CUDA_CHECK(cudaGraphInstantiate(&replay, graph, 0));
  EXPECT_NO_THROW(context.check());
  for (int i = 0; i < 3; ++i) {
    HEDDLE_CUDA_CHECK(cudaGraphLaunch(replay, stream.get()));
    EXPECT_THROW(context.check(), Error);
    EXPECT_NO_THROW(context.check());
  }
  HEDDLE_CUDA_CHECK(cudaGraphExecDestroy(replay));
  HEDDLE_CUDA_CHECK(cudaGraphDestroy(graph));
}

TEST_F(FaultTest, WithoutARecordNobodyIsTold) {
  launch(cuda_context(), 100);
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace heddle::testing
