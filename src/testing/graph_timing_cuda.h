#pragma once

#include <vector>

#include "cuda/check.h"

namespace heddle::testing {

inline constexpr int kWarmUpReplays = 3;
inline constexpr int kTimedReplays = 9;

/// Owns a captured and instantiated graph of the calls that `record` makes on the stream.
class RecordedGraph {
 public:
  template <class Record>
  RecordedGraph(cudaStream_t stream, Record&& record) {
    HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    record();
    cudaGraph_t graph = nullptr;
    HEDDLE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    const cudaError_t error = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    HEDDLE_CUDA_CHECK(error);
  }
  ~RecordedGraph() { cudaGraphExecDestroy(graph_); }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;

  void launch(cudaStream_t stream) const { HEDDLE_CUDA_CHECK(cudaGraphLaunch(graph_, stream)); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

/// Microseconds of one of num_calls calls, one sample for each timed replay of a graph of call(0), ..., call(num_calls - 1).
template <class Call>
std::vector<double> time_in_graph(cudaStream_t stream, int num_calls, Call&& call) {
  const RecordedGraph graph(stream, [&] {
    for (int i = 0; i < num_calls; ++i) call(i);
  });
  cudaEvent_t begin = nullptr, end = nullptr;
  HEDDLE_CUDA_CHECK(cudaEventCreate(&begin));
  HEDDLE_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> samples;
  for (int i = 0; i < kWarmUpReplays + kTimedReplays; ++i) {
    HEDDLE_CUDA_CHECK(cudaEventRecord(begin, stream));
    graph.launch(stream);
    HEDDLE_CUDA_CHECK(cudaEventRecord(end, stream));
    HEDDLE_CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    HEDDLE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= kWarmUpReplays) samples.push_back(double{milliseconds} * 1e3 / num_calls);
  }
  HEDDLE_CUDA_CHECK(cudaEventDestroy(begin));
  HEDDLE_CUDA_CHECK(cudaEventDestroy(end));
  return samples;
}

}  // namespace heddle::testing
