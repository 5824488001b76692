#include <algorithm>
#include <vector>

#include "cuda/check.h"
#include "cuda_test.h"
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "heddle/core/cuda_context.h"

#include "device_memory.h"
#include "expect_error.h"

namespace heddle::testing {
namespace {

class CudaContextTest : public CudaTest {
 protected:
  [[nodiscard]] static Device device() { return {DeviceType::kCuda, current_device()}; }
};

std::vector<std::byte> read(std::span<const std::byte> memory) {
  std::vector<std::byte> bytes(memory.size());
  HEDDLE_CUDA_CHECK(cudaMemcpy(bytes.data(), memory.data(), bytes.size(), cudaMemcpyDeviceToHost));
  return bytes;
}

bool is_zero(const std::vector<std::byte>& bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST_F(CudaContextTest, HasAllThatACallNeeds) {
  const CudaContext context(device(), nullptr, 1 << 12, 1 << 10);
  const ExecContext& exec = context.exec();
  EXPECT_EQ(exec.device, device());
  EXPECT_EQ(exec.info.num_sms, query_device(device()).num_sms);
  EXPECT_GE(exec.info.compute_capability, kMinComputeCapability);
  ASSERT_EQ(exec.exchange.size(), size_t{1} << 10);
  EXPECT_TRUE(is_zero(read(exec.exchange)));
  ASSERT_NE(exec.workspace, nullptr);
  const std::span<std::byte> scratch = exec.workspace->take<std::byte>(1 << 12);
  HEDDLE_CUDA_CHECK(cudaMemset(scratch.data(), 1, scratch.size()));
  EXPECT_FALSE(is_zero(read(scratch)));
}

TEST_F(CudaContextTest, AGrownWorkspaceLeavesTheOldOneAlone) {
  CudaContext context(device(), nullptr, 256);
  std::span<std::byte> first;
  {
    const Workspace::Scope scope(*context.exec().workspace);
    first = context.exec().workspace->take<std::byte>(256);
  }
  HEDDLE_CUDA_CHECK(cudaMemset(first.data(), 7, first.size()));
  context.reserve_workspace(100);
  EXPECT_EQ(context.workspace_bytes(), 256u);
  context.reserve_workspace(1 << 20);
  EXPECT_EQ(context.workspace_bytes(), size_t{1} << 20);
  const std::span<std::byte> second = context.exec().workspace->take<std::byte>(1 << 20);
  HEDDLE_CUDA_CHECK(cudaMemset(second.data(), 1, second.size()));
  for (const std::byte b : read(first)) ASSERT_EQ(b, std::byte{7});
}

TEST_F(CudaContextTest, WithoutExchangeItHasNone) {
  const CudaContext context(device(), nullptr, 0, 0);
  EXPECT_TRUE(context.exec().exchange.empty());
}

TEST_F(CudaContextTest, MayBeMadeWhileAGraphIsCaptured) {
  cudaStream_t stream = nullptr;
  HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(stream, mode));
    const CudaContext context(device(), stream, 1 << 10);
    EXPECT_EQ(context.exec().stream, stream);
    cudaGraph_t graph = nullptr;
    HEDDLE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    size_t num_nodes = 1;
    HEDDLE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
    EXPECT_EQ(num_nodes, 0u);
    HEDDLE_CUDA_CHECK(cudaGraphDestroy(graph));
  }
  HEDDLE_CUDA_CHECK(cudaStreamDestroy(stream));
}

TEST_F(CudaContextTest, TooMuchMemoryIsItsOwnError) {
  expect_error(ErrorCode::kOutOfMemory,
               {"cannot get 1125899906842624 bytes of memory on cuda", " are free"},
               [] { const CudaContext context(device(), nullptr, size_t{1} << 50); });
}

TEST_F(CudaContextTest, MemoryIsOfTheDeviceGivenAndTheCurrentOneStays) {
  int count = 0;
  HEDDLE_CUDA_CHECK(cudaGetDeviceCount(&count));
  const int before = current_device();
  for (int i = 0; i < count; ++i) {
    const CudaContext context({DeviceType::kCuda, i}, nullptr, 1 << 10);
    EXPECT_EQ(current_device(), before);
    cudaPointerAttributes of{};
    HEDDLE_CUDA_CHECK(cudaPointerGetAttributes(&of, context.exec().exchange.data()));
    EXPECT_EQ(of.device, i);
    const ScopedDevice on_device(context.exec().device);
    EXPECT_EQ(current_device(), i);
  }
  EXPECT_EQ(current_device(), before);
}

}  // namespace
}  // namespace heddle::testing
