#include "cuda/check.h"

#include "core/cuda_device.h"

namespace heddle::cuda {

cudaEvent_t make_event(bool is_timed) {
  cudaEvent_t event = nullptr;
  const unsigned flags = is_timed ? cudaEventDefault : cudaEventDisableTiming;
  HEDDLE_CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
  return event;
}

void free_event(cudaEvent_t event) noexcept {
  if (event != nullptr && cudaEventDestroy(event) != cudaSuccess) cudaGetLastError();
}

void record_event(cudaEvent_t event, cudaStream_t stream) {
  HEDDLE_CUDA_CHECK(cudaEventRecord(event, stream));
}

void wait_for(cudaEvent_t event) { HEDDLE_CUDA_CHECK(cudaEventSynchronize(event)); }

double seconds_between(cudaEvent_t begin, cudaEvent_t end) {
  float milliseconds = 0;
  HEDDLE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  return 1e-3 * double{milliseconds};
}

void begin_capture(cudaStream_t stream) {
  HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

cudaGraphExec_t end_capture(cudaStream_t stream, bool is_wanted) {
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made =
      ended == cudaSuccess && is_wanted ? cudaGraphInstantiate(&executable, graph, 0) : cudaSuccess;
  if (graph != nullptr && cudaGraphDestroy(graph) != cudaSuccess) cudaGetLastError();
  if (!is_wanted) {
    cudaGetLastError();
    return nullptr;
  }
  HEDDLE_CUDA_CHECK(ended);
  HEDDLE_CUDA_CHECK(made);
  return executable;
}

void launch_graph(cudaGraphExec_t graph, cudaStream_t stream) {
  HEDDLE_CUDA_CHECK(cudaGraphLaunch(graph, stream));
}

void free_graph(cudaGraphExec_t graph) noexcept {
  if (graph != nullptr && cudaGraphExecDestroy(graph) != cudaSuccess) cudaGetLastError();
}

}  // namespace heddle::cuda
