#pragma once

namespace heddle::cuda {

// Registers of the threads of a warpgroup, all of which call this: compute capability 9.0 alone. A
// block begins with as many for each thread as its launch bounds leave; warpgroups that need few
// give some back for those that need many. kNum: a multiple of 8. The kernel calls no function that
// is not inlined.

template <int kNum>
__device__ void give_back_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kNum));
}
template <int kNum>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kNum));
}

}  // namespace heddle::cuda
