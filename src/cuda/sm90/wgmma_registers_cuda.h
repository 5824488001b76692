#pragma once

#include <cstdint>

#include "cuda/sm90/wgmma_cuda.h"

namespace heddle::cuda {

/// d = a b^T, or d += a b^T with kAdd, as wgmma() (wgmma_cuda.h), for a [64, 16] in registers: a
/// warp has its 16 rows as mma_m16n8k16 takes them (mma_cuda.h). N is 8, 16, 32 or 64.
template <class T, bool kAdd>
__device__ void wgmma_registers(float (&d)[4], const uint32_t (&a)[4], uint64_t b);
template <class T, bool kAdd>
__device__ void wgmma_registers(float (&d)[8], const uint32_t (&a)[4], uint64_t b);
template <class T, bool kAdd>
__device__ void wgmma_registers(float (&d)[16], const uint32_t (&a)[4], uint64_t b);
template <class T, bool kAdd>
__device__ void wgmma_registers(float (&d)[32], const uint32_t (&a)[4], uint64_t b);

// Sums of d from number i on, as operands, and their places in the text.
#define HEDDLE_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HEDDLE_SUMS_8(i) HEDDLE_SUMS_4(i), HEDDLE_SUMS_4(i + 4)
#define HEDDLE_SUMS_16(i) HEDDLE_SUMS_8(i), HEDDLE_SUMS_8(i + 8)
#define HEDDLE_SUMS_32(i) HEDDLE_SUMS_16(i), HEDDLE_SUMS_16(i + 16)
#define HEDDLE_PLACES_4 "%0, %1, %2, %3"
#define HEDDLE_PLACES_8 HEDDLE_PLACES_4 ", %4, %5, %6, %7"
#define HEDDLE_PLACES_16 HEDDLE_PLACES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HEDDLE_PLACES_32 \
  HEDDLE_PLACES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
// n: N; sums: of a lane; a0 ... a3, b_place: places of the operands; add_text: kAdd as 0 or 1.
#define HEDDLE_WGMMA(Type, name, add, add_text, n, sums, a0, a1, a2, a3, b_place)           \
  template <>                                                                               \
  __device__ inline void wgmma_registers<Type, add>(float(&d)[sums], const uint32_t(&a)[4], \
                                                    uint64_t b) {                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name            \
                 " {" HEDDLE_PLACES_##sums "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3        \
                                           "}, %" #b_place ", " add_text ", 1, 1, 0;"       \
                 : HEDDLE_SUMS_##sums(0)                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                     \
  }
#define HEDDLE_WGMMAS(Type, name, add, add_text)                      \
  HEDDLE_WGMMA(Type, name, add, add_text, 8, 4, 4, 5, 6, 7, 8)        \
  HEDDLE_WGMMA(Type, name, add, add_text, 16, 8, 8, 9, 10, 11, 12)    \
  HEDDLE_WGMMA(Type, name, add, add_text, 32, 16, 16, 17, 18, 19, 20) \
  HEDDLE_WGMMA(Type, name, add, add_text, 64, 32, 32, 33, 34, 35, 36)

HEDDLE_WGMMAS(__nv_bfloat16, "bf16", false, "0")
HEDDLE_WGMMAS(__nv_bfloat16, "bf16", true, "1")
HEDDLE_WGMMAS(__half, "f16", false, "0")
HEDDLE_WGMMAS(__half, "f16", true, "1")

#undef HEDDLE_WGMMAS
#undef HEDDLE_WGMMA
#undef HEDDLE_PLACES_32
#undef HEDDLE_PLACES_16
#undef HEDDLE_PLACES_8
#undef HEDDLE_PLACES_4
#undef HEDDLE_SUMS_32
#undef HEDDLE_SUMS_16
#undef HEDDLE_SUMS_8
#undef HEDDLE_SUMS_4

}  // namespace heddle::cuda
