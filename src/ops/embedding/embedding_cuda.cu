#include "cuda/begin_early_cuda.h"
#include "cuda/convert_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/fault_cuda.h"
#include "cuda/index.h"

#include "heddle/core/error.h"

#include "core/math.h"
#include "ops/embedding/embedding_kernels.h"

namespace heddle::cuda::embedding {
namespace {

constexpr int kThreads = 256, kVector = 8;  // elements of a thread
constexpr int64_t kBlockElements = kThreads * kVector;
constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;

struct Params {
  void* y;
  const void* table;
  ConstIndexVector ids;
  int64_t y_stride, table_stride;  // elements
  int64_t vocab_size, width;
  FaultRecord* faults;
  bool has_vectors;  // all rows begin at 16 bytes and are whole vectors
};

template <class T>
struct alignas(16) Vector {
  T values[kVector];
};

template <class Y, class T>
__device__ Y convert(T v) {
  if constexpr (std::is_same_v<Y, T>) {
    return v;
  } else {
    return widen(v);
  }
}

// Grid (tokens, parts of a row): a thread has 8 elements, which are neighbours where rows allow
// vectors, and as many threads apart elsewhere.
template <class Y, class T>
__global__ void __launch_bounds__(kThreads) embedding_kernel(const __grid_constant__ Params p) {
  trigger_dependents();
  begin_early(p);
  const int64_t token = blockIdx.x, id = p.ids.at(token);
  const bool is_inside = id >= 0 && id < p.vocab_size;
  const auto thread = static_cast<int>(threadIdx.x);
  if (!is_inside && thread == 0 && blockIdx.y == 0) {
    report_fault(p.faults, "embedding", "token_ids", token, id);
  }
  const T* const row = static_cast<const T*>(p.table) + (is_inside ? id * p.table_stride : 0);
  Y* const y = static_cast<Y*>(p.y) + token * p.y_stride;
  const int64_t first = blockIdx.y * kBlockElements;
  if (p.has_vectors) {
    const int64_t i = first + thread * kVector;
    if (i >= p.width) return;
    const auto from = is_inside ? *reinterpret_cast<const Vector<T>*>(row + i) : Vector<T>{};
    Vector<Y> to;
#pragma unroll
    for (int e = 0; e < kVector; ++e) to.values[e] = convert<Y>(from.values[e]);
    *reinterpret_cast<Vector<Y>*>(y + i) = to;
    return;
  }
  for (int64_t i = first + thread; i < min(p.width, first + kBlockElements); i += kThreads) {
    y[i] = is_inside ? convert<Y>(row[i]) : Y{};
  }
}

template <class Y, class T>
void launch(const ExecContext& ctx, const Params& p, int64_t tokens) {
  const dim3 grid(static_cast<unsigned>(tokens),
                  static_cast<unsigned>(ceil_div(p.width, kBlockElements)));
  launch_early<embedding_kernel<Y, T>>(ctx, grid, kThreads, p);
}

template <class View>
uintptr_t bits_of(const View& rows) {
  return reinterpret_cast<uintptr_t>(rows.raw()) |
         static_cast<uintptr_t>(rows.stride(0)) * size_of(rows.dtype());
}

}  // namespace

void run(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
         const ConstTensorView& table) {
  const Params p{
      .y = y.raw(),
      .table = table.raw(),
      .ids = ConstIndexVector(token_ids),
      .y_stride = y.stride(0),
      .table_stride = table.stride(0),
      .vocab_size = table.size(0),
      .width = table.size(1),
      .faults = ctx.faults,
      .has_vectors = (bits_of(y) | bits_of(table)) % 16 == 0 && table.size(1) % kVector == 0};
  const int64_t tokens = y.size(0);
  HEDDLE_CHECK(tokens <= kMaxTokens, "embedding: ", tokens, " tokens, at most ", kMaxTokens,
               " are supported on ", ctx.device);
  if (y.dtype() == table.dtype()) {  // as it is
    return y.dtype() == DType::kFloat32 ? launch<uint32_t, uint32_t>(ctx, p, tokens)
                                        : launch<uint16_t, uint16_t>(ctx, p, tokens);
  }
  table.dtype() == DType::kFloat16 ? launch<float, __half>(ctx, p, tokens)
                                   : launch<float, __nv_bfloat16>(ctx, p, tokens);
}

}  // namespace heddle::cuda::embedding
