#pragma once

#include <cstdint>

namespace heddle::cuda {

/// The word at an address of global memory, which no thread of the kernel writes before; zero,
/// without a read, where in_range is false. One predicated instruction: as a branch it would
/// delay the loads after it until its own has arrived.
__device__ inline uint32_t load_word_if(const void* at, bool in_range) {
  uint32_t word;
  asm volatile(
      "{\n"
      "  .reg .pred there;\n"
      "  setp.ne.u32 there, %2, 0;\n"
      "  mov.u32 %0, 0;\n"
      "  @there ld.global.u32 %0, [%1];\n"
      "}"
      : "=r"(word)
      : "l"(at), "r"(static_cast<uint32_t>(in_range)));
  return word;
}

/// Two words of memory that no thread writes, in the same way. It may be moved, as a plain load
/// may.
__device__ inline uint2 load_constant_words_if(const void* at, bool in_range) {
  uint2 words;
  asm("{\n"
      "  .reg .pred there;\n"
      "  setp.ne.u32 there, %3, 0;\n"
      "  mov.u32 %0, 0;\n"
      "  mov.u32 %1, 0;\n"
      "  @there ld.global.nc.v2.u32 {%0, %1}, [%2];\n"
      "}"
      : "=&r"(words.x), "=&r"(words.y)
      : "l"(at), "r"(static_cast<uint32_t>(in_range)));
  return words;
}

/// The word of load_word_if past the first cache, for one that the kernel in front may still write.
__device__ inline uint32_t load_changing_word_if(const void* at, bool in_range) {
  uint32_t word;
  asm volatile(
      "{\n"
      "  .reg .pred there;\n"
      "  setp.ne.u32 there, %2, 0;\n"
      "  mov.u32 %0, 0;\n"
      "  @there ld.relaxed.gpu.global.u32 %0, [%1];\n"
      "}"
      : "=r"(word)
      : "l"(at), "r"(static_cast<uint32_t>(in_range))
      : "memory");
  return word;
}

}  // namespace heddle::cuda
