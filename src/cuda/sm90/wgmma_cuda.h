#pragma once

#include <cstdint>

#include "cuda/memory_cuda.h"
#include "cuda/sm90/swizzled_rows.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace heddle::cuda {

// Products of a warpgroup (four warps, the first a multiple of four) from shared memory: compute
// capability 9.0 alone. Source: PTX ISA, "Asynchronous warpgroup level matrix instructions".
//
//   a [64, 16], b [N, 16]: both with k along a row, in rows of 128 bytes that tensor copies lay
//   down with a swizzle of 128 bytes (tensor_copy_cuda.h); 8 rows are 1024 bytes
//   d [64, N] f32 in registers: lane (g, q) = (lane / 4, lane % 4) of warp w has
//     d[4 j], d[4 j + 1]       row 16 w + g, columns 8 j + 2 q and + 1
//     d[4 j + 2], d[4 j + 3]   row 16 w + g + 8, the same columns

inline constexpr int kSwizzledBlockBytes = 8 * kSwizzledRowBytes;  // of 8 rows

/// The descriptor of such rows, which begin at a multiple of 1024 bytes. 32 bytes further
/// (16 elements) are 2 more.
[[nodiscard]] __device__ inline uint64_t matrix_descriptor(const void* rows) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kAnyLeadingStep = uint64_t{1} << 16;
  constexpr uint64_t kBlockStep = uint64_t{kSwizzledBlockBytes / 16} << 32;
  return kSwizzle128 | kBlockStep | kAnyLeadingStep | (shared_address(rows) & 0x3ffff) >> 4;
}

/// The descriptor of b [K, N] with n along its rows: blocks of 64 columns, `block_step` bytes
/// apart, of rows of 128 bytes as above. 16 rows further are 2048 bytes, 128 more.
[[nodiscard]] __device__ inline uint64_t column_descriptor(const void* rows, uint32_t block_step) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kBlockStep = uint64_t{kSwizzledBlockBytes / 16} << 32;
  return kSwizzle128 | kBlockStep | uint64_t{block_step / 16} << 16 |
         (shared_address(rows) & 0x3ffff) >> 4;
}

/// The descriptor of what lies `bytes` further, a multiple of 16.
[[nodiscard]] __device__ inline uint64_t further(uint64_t descriptor, uint32_t bytes) {
  const uint32_t low = static_cast<uint32_t>(descriptor) + bytes / 16;
  return (descriptor & ~uint64_t{0xffffffff}) | low;
}

/// Shows what this thread has in its registers of d to products that it starts from now on.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes a group of products; wait_for_products waits until at most kPending groups run.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Ties sums to the place where products have been waited for: nothing reads them before.
template <int kNum>
__device__ void hold(float (&d)[kNum]) {
#pragma unroll
  for (float& sum : d) asm volatile("" : "+f"(sum)::"memory");
}

/// d += a b^T for N = 16, 32 or 64, which d has 8, 16 or 32 sums of a lane of. Runs on until it is
/// waited for.
template <class T>
__device__ void wgmma(float (&d)[8], uint64_t a, uint64_t b);
template <class T>
__device__ void wgmma(float (&d)[16], uint64_t a, uint64_t b);
template <class T>
__device__ void wgmma(float (&d)[32], uint64_t a, uint64_t b);

/// For N = 64, 128 or 256, of which d has 32, 64 or 128 sums of a lane; without `accumulate` d = a
/// b^T.
template <class T>
__device__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, bool accumulate);
template <class T>
__device__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, bool accumulate);
template <class T>
__device__ void wgmma(float (&d)[128], uint64_t a, uint64_t b, bool accumulate);

/// d += a b for a [64, 16] in registers, as mma_m16n8k16 (mma_cuda.h) has the 16 rows of a warp,
/// and b [16, N] with n along its rows: N = 64 or 128, in blocks of 64 columns (column_descriptor).
template <class T>
__device__ void wgmma_rows(float (&d)[32], const uint32_t* a, uint64_t b);
template <class T>
__device__ void wgmma_rows(float (&d)[64], const uint32_t* a, uint64_t b);

// Sums of d from number i on, as operands, and their places in the text.
#define HEDDLE_SUMS_8(i)                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define HEDDLE_SUMS_16(i) HEDDLE_SUMS_8(i), HEDDLE_SUMS_8(i + 8)
#define HEDDLE_SUMS_32(i) HEDDLE_SUMS_16(i), HEDDLE_SUMS_16(i + 16)
#define HEDDLE_SUMS_64(i) HEDDLE_SUMS_32(i), HEDDLE_SUMS_32(i + 32)
#define HEDDLE_SUMS_128(i) HEDDLE_SUMS_64(i), HEDDLE_SUMS_64(i + 64)
#define HEDDLE_PLACES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define HEDDLE_PLACES_16 HEDDLE_PLACES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HEDDLE_PLACES_32 \
  HEDDLE_PLACES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HEDDLE_PLACES_64                                                             \
  HEDDLE_PLACES_32                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HEDDLE_PLACES_128                                                                        \
  HEDDLE_PLACES_64                                                                               \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "   \
  "%127"
// name: of the type; n: N; sums: of a lane; a, b: places of the operands after the sums.
#define HEDDLE_WGMMA(Type, name, n, sums, a_place, b_place)                                  \
  template <>                                                                                \
  __device__ inline void wgmma<Type>(float(&d)[sums], uint64_t a, uint64_t b) {              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name             \
                 " {" HEDDLE_PLACES_##sums "}, %" #a_place ", %" #b_place ", 1, 1, 1, 0, 0;" \
                 : HEDDLE_SUMS_##sums(0)                                                     \
                 : "l"(a), "l"(b));                                                          \
  }
// p_place: of `accumulate`.
#define HEDDLE_WIDE_WGMMA(Type, name, n, sums, a_place, b_place, p_place)                        \
  template <>                                                                                    \
  __device__ inline void wgmma<Type>(float(&d)[sums], uint64_t a, uint64_t b, bool accumulate) { \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p_place                                      \
                 ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name            \
                 " {" HEDDLE_PLACES_##sums "}, %" #a_place ", %" #b_place ", p, 1, 1, 0, 0;}"    \
                 : HEDDLE_SUMS_##sums(0)                                                         \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                           \
  }
// a0 ... a3: places of the registers of a.
#define HEDDLE_ROWS_WGMMA(Type, name, n, sums, a0, a1, a2, a3, b_place)                     \
  template <>                                                                               \
  __device__ inline void wgmma_rows<Type>(float(&d)[sums], const uint32_t* a, uint64_t b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name            \
                 " {" HEDDLE_PLACES_##sums "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3        \
                                           "}, %" #b_place ", 1, 1, 1, 1;"                  \
                 : HEDDLE_SUMS_##sums(0)                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                     \
  }
#define HEDDLE_ALL_WGMMAS(Type, name)                        \
  HEDDLE_ROWS_WGMMA(Type, name, 64, 32, 32, 33, 34, 35, 36)  \
  HEDDLE_ROWS_WGMMA(Type, name, 128, 64, 64, 65, 66, 67, 68) \
  HEDDLE_WGMMA(Type, name, 16, 8, 8, 9)                      \
  HEDDLE_WGMMA(Type, name, 32, 16, 16, 17)                   \
  HEDDLE_WGMMA(Type, name, 64, 32, 32, 33)                   \
  HEDDLE_WIDE_WGMMA(Type, name, 64, 32, 32, 33, 34)          \
  HEDDLE_WIDE_WGMMA(Type, name, 128, 64, 64, 65, 66)         \
  HEDDLE_WIDE_WGMMA(Type, name, 256, 128, 128, 129, 130)

HEDDLE_ALL_WGMMAS(__nv_bfloat16, "bf16")
HEDDLE_ALL_WGMMAS(__half, "f16")

#undef HEDDLE_ALL_WGMMAS
#undef HEDDLE_ROWS_WGMMA
#undef HEDDLE_WIDE_WGMMA
#undef HEDDLE_WGMMA
#undef HEDDLE_PLACES_128
#undef HEDDLE_PLACES_64
#undef HEDDLE_PLACES_32
#undef HEDDLE_PLACES_16
#undef HEDDLE_PLACES_8
#undef HEDDLE_SUMS_128
#undef HEDDLE_SUMS_64
#undef HEDDLE_SUMS_32
#undef HEDDLE_SUMS_16
#undef HEDDLE_SUMS_8

}  // namespace heddle::cuda
