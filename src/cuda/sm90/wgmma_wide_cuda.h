#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace heddle::cuda {

// Products of a warpgroup as in wgmma_cuda.h, for many columns: N = 128 or 256, of which d has 64
// or 128 sums of a lane. d = a b^T, or with `accumulate` d += a b^T.

template <class T>
__device__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, bool accumulate);
template <class T>
__device__ void wgmma(float (&d)[128], uint64_t a, uint64_t b, bool accumulate);

// Sixteen sums of d from number i on, as operands.
#define HEDDLE_SUMS_16(i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]),        \
      "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define HEDDLE_SUMS_64(i) \
  HEDDLE_SUMS_16(i), HEDDLE_SUMS_16(i + 16), HEDDLE_SUMS_16(i + 32), HEDDLE_SUMS_16(i + 48)
#define HEDDLE_PLACES_64                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HEDDLE_PLACES_128                                                                        \
  HEDDLE_PLACES_64                                                                               \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "   \
  "%127"
#define HEDDLE_WIDE_WGMMA(Type, name)                                                           \
  template <>                                                                                   \
  __device__ inline void wgmma<Type>(float(&d)[64], uint64_t a, uint64_t b, bool accumulate) {  \
    asm volatile(                                                                               \
        "{.reg .pred p; setp.ne.b32 p, %66, 0; "                                                \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." name "." name " {" HEDDLE_PLACES_64      \
        "}, %64, %65, p, 1, 1, 0, 0;}"                                                          \
        : HEDDLE_SUMS_64(0)                                                                     \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                   \
  }                                                                                             \
  template <>                                                                                   \
  __device__ inline void wgmma<Type>(float(&d)[128], uint64_t a, uint64_t b, bool accumulate) { \
    asm volatile(                                                                               \
        "{.reg .pred p; setp.ne.b32 p, %130, 0; "                                               \
        "wgmma.mma_async.sync.aligned.m64n256k16.f32." name "." name " {" HEDDLE_PLACES_128     \
        "}, %128, %129, p, 1, 1, 0, 0;}"                                                        \
        : HEDDLE_SUMS_64(0), HEDDLE_SUMS_64(64)                                                 \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                   \
  }

HEDDLE_WIDE_WGMMA(__nv_bfloat16, "bf16")
HEDDLE_WIDE_WGMMA(__half, "f16")

#undef HEDDLE_WIDE_WGMMA
#undef HEDDLE_PLACES_128
#undef HEDDLE_PLACES_64
#undef HEDDLE_SUMS_64
#undef HEDDLE_SUMS_16

}  // namespace heddle::cuda
