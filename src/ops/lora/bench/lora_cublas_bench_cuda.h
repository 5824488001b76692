#pragma once

// The product of a base model's linear site by cuBLASLt, with which LoRA is compared.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cublasLt.h>

#include "heddle/core/check.h"

#include "core/device_bytes.h"
#include "ops/lora/bench/lora_bench_cuda.h"

namespace heddle::lora_bench {

inline constexpr size_t kProductWorkspace = size_t{32} << 20;
inline constexpr int kAlgorithms = 8;  // suggestions of cuBLASLt, to choose among by time

inline void check_cublas(cublasStatus_t status, const char* what) {
  HEDDLE_CHECK(status == CUBLAS_STATUS_SUCCESS, what, ": ", cublasLtGetStatusString(status));
}

class CublasLt {
 public:
  CublasLt() : workspace_(allocate_zeroed(kGpu, kProductWorkspace)) {
    check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
  }
  ~CublasLt() { cublasLtDestroy(handle_); }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  [[nodiscard]] cublasLtHandle_t handle() const { return handle_; }
  [[nodiscard]] void* workspace() const { return workspace_.get(); }

 private:
  cublasLtHandle_t handle_ = nullptr;
  DeviceBytes workspace_;
};

/// y = x W^T of one kind of site: x [tokens, in], W [out, in], y [tokens, out], bf16 with sums in
/// f32. x_stride: elements between rows of x; 0: it has no gaps.
class Product {
 public:
  Product(const CublasLt& cublas, int64_t tokens, int64_t in, int64_t out, int64_t x_stride = 0)
      : cublas_(cublas) {
    check_cublas(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDesc");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_cublas(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                sizeof(transposed)),
                 "TRANSA");
    // cuBLASLt counts by columns: y^T [out, tokens] = (W^T)^T x^T.
    make_layout(w_, in, out, in);
    make_layout(x_, in, tokens, x_stride > 0 ? x_stride : in);
    make_layout(y_, out, tokens, out);
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference), "Preference");
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kProductWorkspace, sizeof(kProductWorkspace)),
        "MAX_WORKSPACE_BYTES");
    std::array<cublasLtMatmulHeuristicResult_t, kAlgorithms> results;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        cublas_.handle(), desc_, w_, x_, y_, y_, preference, kAlgorithms, results.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    check_cublas(status, "AlgoGetHeuristic");
    for (int i = 0; i < count; ++i) {
      if (results[size_t(i)].state == CUBLAS_STATUS_SUCCESS) {
        algorithms_.push_back({results[size_t(i)].algo});
      }
    }
    HEDDLE_CHECK(!algorithms_.empty(), "cuBLASLt has no algorithm for ", in, " -> ", out);
  }
  ~Product() {
    for (const auto layout : {w_, x_, y_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void operator()(cudaStream_t stream, const TensorView& y, const TensorView& x,
                  const TensorView& w) const {
    const float one = 1, zero = 0;
    check_cublas(cublasLtMatmul(cublas_.handle(), desc_, &one, w.raw(), w_, x.raw(), x_, &zero,
                                y.raw(), y_, y.raw(), y_, &algorithms_[chosen_].value,
                                cublas_.workspace(), kProductWorkspace, stream),
                 "cublasLtMatmul");
  }

  /// Chooses the fastest of the suggestions; us() has the time of one call, as samples.
  template <class Time>
  std::vector<double> choose(Time&& us) {
    std::vector<double> best;
    size_t best_index = 0;
    for (chosen_ = 0; chosen_ < algorithms_.size(); ++chosen_) {
      const std::vector<double> samples = us();
      if (best.empty() || median(samples) < median(best)) {
        best = samples;
        best_index = chosen_;
      }
    }
    chosen_ = best_index;
    return best;
  }

 private:
  struct Algorithm {  // nvcc 13.0 fails on a vector of the C struct itself
    cublasLtMatmulAlgo_t value;
  };

  static void make_layout(cublasLtMatrixLayout_t& layout, int64_t rows, int64_t columns,
                          int64_t stride) {
    check_cublas(
        cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, uint64_t(rows), uint64_t(columns), stride),
        "MatrixLayout");
  }

  const CublasLt& cublas_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
  std::vector<Algorithm> algorithms_;
  size_t chosen_ = 0;
};

}  // namespace heddle::lora_bench
