#pragma once

#include <vector>

#include "cuda/check.h"

namespace heddle::testing {

/// How often a graph is replayed; warm_up: at the least, see kWarmUpUs.
struct Replays {
  int warm_up = 3, timed = 9;
};

/// Replays before the first timed one take this long, so that a GPU that has had nothing to do is
/// at its clocks.
inline constexpr double kWarmUpUs = 60e3;

/// Owns a captured and instantiated graph of the calls that `record` makes on the stream.
class RecordedGraph {
 public:
  template <class Record>
  RecordedGraph(cudaStream_t stream, Record&& record) {
    HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      record();
    } catch (...) {  // so that the stream can be used for others
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
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

/// Times replays with a pair of events.
class ReplayTimer {
 public:
  ReplayTimer() {
    HEDDLE_CUDA_CHECK(cudaEventCreate(&begin_));
    HEDDLE_CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~ReplayTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  ReplayTimer(const ReplayTimer&) = delete;
  ReplayTimer& operator=(const ReplayTimer&) = delete;

  /// Microseconds of one replay, which has ended when this returns.
  double operator()(const RecordedGraph& graph, cudaStream_t stream) {
    HEDDLE_CUDA_CHECK(cudaEventRecord(begin_, stream));
    graph.launch(stream);
    HEDDLE_CUDA_CHECK(cudaEventRecord(end_, stream));
    HEDDLE_CUDA_CHECK(cudaEventSynchronize(end_));
    float milliseconds = 0;
    HEDDLE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return double{milliseconds} * 1e3;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Microseconds of one of num_calls calls, one sample for each timed replay of a graph of call(0),
/// ..., call(num_calls - 1).
template <class Call>
std::vector<double> time_in_graph(cudaStream_t stream, int num_calls, Call&& call,
                                  Replays replays = {}) {
  const RecordedGraph graph(stream, [&] {
    for (int i = 0; i < num_calls; ++i) call(i);
  });
  ReplayTimer replay_us;
  double warm_us = 0;
  for (int i = 0; i < replays.warm_up || warm_us < kWarmUpUs; ++i) {
    warm_us += replay_us(graph, stream);
  }
  std::vector<double> samples;
  for (int i = 0; i < replays.timed; ++i) samples.push_back(replay_us(graph, stream) / num_calls);
  return samples;
}

}  // namespace heddle::testing
