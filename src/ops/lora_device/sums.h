#pragma once

namespace heddle::cuda::lora {

// The arithmetic of LoRA on the GPU is the same in every kernel, for every batch and grid. That is
// why all routes have the same bits. One value of h = A x is summed like this:
//
//   x, A   |  chunk 0  |  chunk 1  | ... |  chunk 8  |  chunk 9  | ...      512 features each
//             /  |  \                                                         64 features a warp:
//          w0 w1 .. w7                                                       tensor cores, f32
//            w0 + w1 + ... + w7                                              in this order, f32
//
//   chain 0 = chunk 0 + chunk 8 + chunk 16 + ...      chain j = chunk j + chunk j + 8 + ..., f32
//   h = ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7))      of the eight chains, f32
//
// Then y += B h. Tensor cores take no f32, so h is split into two values of the weights' dtype,
// hi = T(h) and lo = T(h - hi). Both are multiplied with B, and the products are added in f32.
//
// Lane (g, q) of a warp means g = lane / 4 (0 to 7) and q = lane % 4, as cuda/mma_cuda.h numbers
// them.
inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / 32;
inline constexpr int kChunkFeatures = 512;
inline constexpr int kChains = 8;
inline constexpr int kTileRanks = 16;  // ranks of one work item of shrink
// Outputs of one work item of expand. Where there are many items, an item has twice as many.
inline constexpr int kTileOutputs = 256;
// Ranks of one work item of the kernel that only sums what lora_shrink needs.
inline constexpr int kSumRanks = 128;
inline constexpr int kRowTileRows = 16;  // rows of one adapter that share a work item
inline constexpr int kWindowRows = 256;  // rows of one launch
inline constexpr int kMaxSlices = 4;     // of one launch
// A product takes 16 ranks, which is a step. Adapters with more than 16 ranks load two steps at
// once.
inline constexpr int kHPairRanks = 32;

}  // namespace heddle::cuda::lora
