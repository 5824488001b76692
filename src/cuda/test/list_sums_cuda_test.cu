#include <vector>

#include "cuda/begin_early_cuda.h"
#include "cuda/check.h"
#include "cuda/early_launch.h"
#include "cuda/list_sums_cuda.h"
#include "cuda_test.h"
#include <gtest/gtest.h>

#include "device_buffer.h"
#include "graph_timing_cuda.h"
#include "random.h"

namespace heddle::testing {
namespace {

constexpr size_t kWords = size_t{cuda::kMaxListBlocks} + 1;

// The block of number b takes sizes[b] places. Each of its warps adds the first of them to
// places[b] and counts itself in warps[b]; the last block of the launch writes the total.
template <cuda::ListOrder kOrder>
__global__ void list_kernel(uint64_t* words, const uint32_t* sizes, uint32_t* places,
                            uint32_t* total, uint32_t* warps) {
  cuda::wait_for_predecessor();
  cuda::ListSums<kOrder> sums(words);
  const uint32_t b = sums.block();
  if (threadIdx.x == 0) {
    __nanosleep(b * 7919 % 2000);
    sums.publish(sizes[b]);
  }
  __syncwarp();
  const uint32_t before = sums.before();
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&places[b], before);
    atomicAdd(&warps[b], 1u);
  }
  if (sums.is_last() && threadIdx.x == 0) *total = before + sizes[b];
}

/// The exchange of a launch, and what launches of up to kMaxListBlocks blocks write.
class Lists {
 public:
  Lists() : words_(std::vector<uint64_t>(kWords, 0)) {}

  void set_launches(uint64_t launches) { words_.upload(std::vector<uint64_t>{launches << 32}); }
  [[nodiscard]] std::vector<uint64_t> words() const { return words_.download(); }
  /// Fresh sizes, for what is launched next.
  void load() {
    sizes_.clear();
    for (size_t b = 0; b < kWords; ++b) sizes_.push_back(uint32_t(random_int(0, 999)));
    on_device_.upload(sizes_);
    places_.upload(std::vector<uint32_t>(kWords, 0));
    warps_.upload(std::vector<uint32_t>(kWords, 0));
    total_.upload(std::vector<uint32_t>{0});
  }
  void launch(unsigned blocks, unsigned threads, cudaStream_t stream = nullptr) {
    list_kernel<cuda::ListOrder::kStarted><<<blocks, threads, 0, stream>>>(
        words_.data(), on_device_.data(), places_.data(), total_.data(), warps_.data());
    HEDDLE_CUDA_CHECK(cudaGetLastError());
  }
  /// As one cluster.
  void launch_cluster(unsigned blocks, unsigned threads, const ExecContext& ctx) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = ctx.stream;
    cuda::launch_clusters_early<list_kernel<cuda::ListOrder::kLaunched>>(
        ctx.device.index, config, blocks, words_.data(), on_device_.data(), places_.data(),
        total_.data(), warps_.data());
  }
  /// Of `launches` launches of these blocks since load().
  void expect_places(unsigned blocks, unsigned threads, uint32_t launches = 1) const {
    const std::vector<uint32_t> places = places_.download(), warps = warps_.download();
    const uint32_t calls = threads / 32 * launches;
    uint32_t sum = 0;
    for (unsigned b = 0; b < blocks; ++b) {
      ASSERT_EQ(warps[b], calls) << b << " of " << blocks;
      ASSERT_EQ(places[b], calls * sum) << b << " of " << blocks;
      sum += sizes_[b];
    }
    EXPECT_EQ(total_.download()[0], sum);
    EXPECT_EQ(static_cast<uint32_t>(words()[0]), 0u) << "tickets that the next launch begins with";
  }

 private:
  std::vector<uint32_t> sizes_;
  DeviceBuffer<uint64_t> words_;
  DeviceBuffer<uint32_t> on_device_{kWords}, places_{kWords}, warps_{kWords}, total_{1};
};

class ListSumsCuda : public CudaTest {};

TEST_F(ListSumsCuda, EachBlockHasAPlaceBehindThoseThatStartedBefore) {
  Lists lists;
  for (const unsigned blocks : {1u, 2u, 31u, 33u, 400u, unsigned(cuda::kMaxListBlocks), 3u}) {
    for (const unsigned threads : {32u, 64u, 1024u}) {  // of the latter few blocks fit on a chip
      lists.load();
      lists.launch(blocks, threads);
      lists.expect_places(blocks, threads);
    }
  }
}

TEST_F(ListSumsCuda, LaunchesOfAnySizesFollowOneAnother) {
  Lists lists;
  for (int round = 0; round < 20; ++round) {
    const auto blocks = unsigned(random_int(1, 40));
    lists.load();
    for (int i = 0; i < 10; ++i) lists.launch(blocks, 64);
    lists.expect_places(blocks, 64, 10);
  }
}

// They share the words with launches that take tickets.
TEST_F(ListSumsCuda, AClusterHasThePlacesOfItsBlocksInTheirOrder) {
  const ExecContext ctx = cuda_context();
  constexpr auto kKernel = list_kernel<cuda::ListOrder::kLaunched>;
  if (!cuda::can_start_early<kKernel>(ctx.device.index)) GTEST_SKIP() << "no clusters";
  Lists lists;
  for (int round = 0; round < 30; ++round) {
    const auto blocks = unsigned(random_int(1, 8));
    lists.load();
    for (int i = 0; i < 5; ++i) {
      lists.launch_cluster(blocks, 64, ctx);
      lists.launch(blocks, 64);
    }
    lists.expect_places(blocks, 64, 10);
  }
}

TEST_F(ListSumsCuda, ACapturedLaunchIsReplayed) {
  Lists lists;
  const DeviceStream stream;
  lists.load();
  lists.launch(50, 64, stream.get());  // loads the kernel
  stream.wait();
  const RecordedGraph graph(stream.get(), [&] { lists.launch(50, 64, stream.get()); });
  for (int round = 0; round < 5; ++round) {
    lists.load();
    graph.launch(stream.get());
    stream.wait();
    lists.expect_places(50, 64);
  }
}

TEST_F(ListSumsCuda, TheNumberOfTheLaunchBeginsAnew) {
  Lists lists;
  lists.set_launches(0xfffffffd);
  for (const uint64_t launches : {0xfffffffeu, 0xffffffffu, 1u, 2u}) {
    lists.load();
    lists.launch(40, 64);
    lists.expect_places(40, 64);
    EXPECT_EQ(lists.words()[0], launches << 32);
  }
}

// Else a launch of as many blocks, 2^32 - 1 launches later, would take them for its own.
TEST_F(ListSumsCuda, OldSumsAreCleared) {
  Lists lists;
  lists.load();
  lists.launch(unsigned(cuda::kMaxListBlocks), 64);
  EXPECT_NE(lists.words().back(), 0u);
  for (int64_t i = 0; i < cuda::kMaxListBlocks; ++i) lists.launch(2, 32);
  const std::vector<uint64_t> words = lists.words();
  for (size_t b = 2; b < size_t{cuda::kMaxListBlocks}; ++b) EXPECT_EQ(words[1 + b], 0u) << b;
}

TEST_F(ListSumsCuda, WithoutWordsAListHasOneBlock) {
  DeviceBuffer<uint32_t> sizes(std::vector<uint32_t>{5}), places(std::vector<uint32_t>{0}),
      total(std::vector<uint32_t>{0}), warps(std::vector<uint32_t>{0});
  list_kernel<cuda::ListOrder::kStarted>
      <<<1, 64>>>(nullptr, sizes.data(), places.data(), total.data(), warps.data());
  HEDDLE_CUDA_CHECK(cudaGetLastError());
  EXPECT_EQ(warps.download()[0], 2u);
  EXPECT_EQ(places.download()[0], 0u);
  EXPECT_EQ(total.download()[0], 5u);
}

}  // namespace
}  // namespace heddle::testing
