#pragma once

// `#pragma unroll` in functions that tests run on the host, too, whose compiler does not know it.
#ifdef __CUDA_ARCH__
#define HEDDLE_UNROLL _Pragma("unroll")
#define HEDDLE_NO_UNROLL _Pragma("unroll 1")
#else
#define HEDDLE_UNROLL
#define HEDDLE_NO_UNROLL
#endif
