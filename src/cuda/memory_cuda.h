#pragma once

#include <cstdint>

namespace heddle::cuda {

/// 16 or 8 bytes of weights: read once, so L1 keeps nothing of them.
__device__ inline uint4 load_once_16(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ inline uint2 load_once_8(const void* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(p));
  return v;
}

/// Has what lies there brought into the L2 cache.
__device__ inline void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/// The address of what lies in shared memory, as instructions for it take it.
__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// The 16 bytes that begin `bytes` bytes (even, below 16) into `low`, which `high` follows.
__device__ inline uint4 shift_down(const uint4& low, const uint4& high, int bytes) {
  uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if ((bytes & 8) != 0) {
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = w[i + 2];
  }
  if ((bytes & 4) != 0) {
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 1];
  }
  const int bits = (bytes & 2) * 8;
  return {__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
          __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits)};
}

/// Starts copying `bytes` bytes, 0 to 16, into 16 bytes of shared memory, zeros after them; both
/// begin at multiples of 16.
__device__ inline void copy_async_16(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void copy_async_16(void* to, const void* from, int bytes) {
  copy_async_16(shared_address(to), from, bytes);
}
/// Starts copying 16 bytes into shared memory.
__device__ inline void copy_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
/// Starts copying 16 bytes into shared memory, zeros where in_range is false: then `from` is not
/// read.
__device__ inline void copy_async_16_if(uint32_t to, const void* from, bool in_range) {
  asm volatile(
      "{\n"
      "  .reg .pred missing;\n"
      "  setp.eq.u32 missing, %2, 0;\n"
      "  cp.async.cg.shared.global.L2::128B [%0], [%1], 16, missing;\n"
      "}" ::"r"(to),
      "l"(from), "r"(static_cast<uint32_t>(in_range))
      : "memory");
}
/// Starts copying 8 bytes into shared memory, zeros where in_range is false: then `from` is not
/// read.
__device__ inline void copy_async_8(void* to, const void* from, bool in_range) {
  const uint32_t shared = shared_address(to);
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, %2;" ::"r"(shared), "l"(from),
               "r"(in_range ? 8 : 0)
               : "memory");
}
/// Starts copying 4 bytes into shared memory.
__device__ inline void copy_async_4(void* to, const void* from) {
  const uint32_t shared = shared_address(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(from) : "memory");
}
/// The same, zeros where in_range is false: then `from` is not read.
__device__ inline void copy_async_4(void* to, const void* from, bool in_range) {
  const uint32_t shared = shared_address(to);
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(shared), "l"(from),
               "r"(in_range ? 4 : 0)
               : "memory");
}
/// Closes a group of copies of this thread; wait_for_copies waits until at most kPending of its
/// groups are open.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// A value and the number that says for which launch it is, written and read as one.
struct FlaggedWord {
  float value;
  uint32_t flag;
};
__device__ inline void publish(FlaggedWord* word, FlaggedWord v) {
  const uint64_t bits = uint64_t{v.flag} << 32 | __float_as_uint(v.value);
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(word), "l"(bits) : "memory");
}
__device__ inline FlaggedWord peek(const FlaggedWord* word) {
  uint64_t bits;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(bits) : "l"(word) : "memory");
  return {__uint_as_float(static_cast<uint32_t>(bits)), static_cast<uint32_t>(bits >> 32)};
}

/// Adds to a counter in global memory and returns what it was. What the thread knew to be written
/// before is seen by those whose addition comes later.
__device__ inline uint32_t add_to_counter(uint32_t* counter, uint32_t n) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(n)
               : "memory");
  return before;
}

/// Adds 1 in the same way, and waits for nothing.
__device__ inline void advance_counter(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
/// What a counter is. What was known to be written before the additions that it has can be seen.
__device__ inline uint32_t read_counter(const uint32_t* counter) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory");
  return v;
}

/// Lets the next kernel of the stream start, if it was launched to start early.
__device__ inline void trigger_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Waits until the kernel before has ended and its writes can be seen, if this one was launched to
/// start early.
__device__ inline void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace heddle::cuda
