#pragma once

#include "ops/linear_site/decode/adapter_base_cuda.h"

namespace heddle::cuda::linear_site {

/// Sums of B h for the outputs of a block's tiles, and the factors of its rows. A work item is 64
/// outputs of a tile times all ranks, for the rows of a row tile; a warp has it whole. Its pieces
/// are [64 outputs][16 ranks], of an adapter of more than 16 ranks [32 outputs][32 ranks].
template <class T>
class Expand {
 public:
  __device__ explicit Expand(const AdapterWarp& warp)
      : w_(warp),
        ring_(warp.s.ring + warp.index * warp.s.num_stages * kExpandStageBytes, warp.s.num_stages) {
  }

  /// The plan is read before the previous kernels have ended, which may write it. What is read then
  /// is no more than a guess.
  __device__ void begin() {
    const lora::WindowHead head(*w_.c.plan, w_.c.plan_tag);
    if (w_.thread() < head.num_row_tiles) {
      early_slot_ = w_.c.plan->row_tiles[w_.thread()].slot;
      if (static_cast<unsigned>(early_slot_) >= static_cast<unsigned>(w_.c.num_slots)) {
        early_slot_ = -1;
      }
    }
  }

  /// Puts the sums of the outputs [first, first + num) of a slice into shared memory.
  __device__ void run(int slice, int first, int num) {
    const bool is_other_slice = slice != slice_;
    slice_ = slice;
    if (is_other_slice) look_up();
    Cursor ahead(*this, num);
    const auto fill = [&](std::byte* stage) {
      if (!ahead.has_piece()) return;
      load_piece(ahead, first, stage);
      ahead.advance();
    };
    ring_.begin(fill);
    if (is_other_slice) {
      wait_for_predecessor();  // A x
      gather_h();
      w_.meet();
    }
    for (Cursor at(*this, num); at.has_piece(); at.advance()) {
      const std::byte* const stage = ring_.wait();
      if (at.is_narrow()) {
        multiply_narrow(at, stage);
      } else {
        multiply_wide(at, stage);
      }
      ring_.release(fill);
    }
  }

 private:
  static constexpr int kItemOutputs = 64, kHalfOutputs = 32, kHPairRanks = lora::kHPairRanks;

  /// A place in the pieces of a warp's items, which follow each other.
  class Cursor {
   public:
    __device__ Cursor(const Expand& of, int num_outputs) : num_outputs_(num_outputs) {
      const int groups = ceil_div(num_outputs, kItemOutputs);
      const int items = of.plan_.num_row_tiles * groups;
      const int first = items * of.w_.index / kLoraWarps;
      left_ = items * (of.w_.index + 1) / kLoraWarps - first;
      if (left_ <= 0) return;
      const int tile = first / groups;
      row_tile_ = of.w_.s.row_tiles + tile;
      output_ = (first - tile * groups) * kItemOutputs;
      skip_empty();
    }
    [[nodiscard]] __device__ bool has_piece() const { return left_ > 0; }
    [[nodiscard]] const __device__ RowTileOfSlice& row_tile() const { return *row_tile_; }
    [[nodiscard]] __device__ bool is_narrow() const { return row_tile_->rank <= kTileRanks; }
    /// Of the tile, the piece's first one.
    [[nodiscard]] __device__ int output() const { return output_; }
    [[nodiscard]] __device__ int num_outputs() const { return num_outputs_; }
    [[nodiscard]] __device__ int first_rank() const { return first_rank_; }
    __device__ void advance() {
      const int rank = row_tile_->rank;
      if (rank > kTileRanks) {
        first_rank_ += kHPairRanks;
        if (first_rank_ < rank) return;
        first_rank_ = 0;
        output_ += kHalfOutputs;
        if (output_ % kItemOutputs != 0 && output_ < num_outputs_) return;
        output_ = round_up(output_, kItemOutputs);
      } else {
        output_ += kItemOutputs;
      }
      next_item();
      skip_empty();
    }

   private:
    __device__ void next_item() {
      --left_;
      if (output_ < num_outputs_) return;
      output_ = 0;
      ++row_tile_;
    }
    __device__ void skip_empty() {
      while (left_ > 0 && row_tile_->rank == 0) {
        output_ += kItemOutputs;
        next_item();
      }
    }

    const RowTileOfSlice* row_tile_ = nullptr;
    int num_outputs_, left_ = 0, output_ = 0, first_rank_ = 0;
  };

  /// Looks up the adapters of a slice, one thread a row tile.
  __device__ void look_up() {
    const DecodeAdapters& c = w_.c;
    const int i = w_.thread();
    static_assert(kLoraThreads >= 2 * kGroupRows);
    // All that memory says, before anything waits for the head of the plan.
    static_assert(kLoraThreads <= lora::kWindowRows);
    const lora::RowTile& from = c.plan->row_tiles[i];
    const int4 head = *reinterpret_cast<const int4*>(&from);
    const int first_partial = from.first_partial;
    const int4 rows[2] = {reinterpret_cast<const int4*>(from.rows)[0],
                          reinterpret_cast<const int4*>(from.rows)[1]};
    LoraWeight a{}, b{};
    const auto read_weights = [&] {
      a = c.a[early_slot_ * c.a_stride + slice_];
      b = c.b[early_slot_ * c.b_stride + slice_];
    };
    if (early_slot_ >= 0) read_weights();
    plan_ = lora::WindowHead(*c.plan, c.plan_tag);
    const bool has_tile = i < plan_.num_row_tiles;
    if (has_tile && head.x != early_slot_) {
      early_slot_ = head.x;
      read_weights();
    }
    w_.meet();  // the previous slice's values have been read
    const RowFactor none = plan_.is_foreign ? RowFactor{NAN, true} : RowFactor{};
    for (int row = i; row < w_.p.num_rows; row += kLoraThreads) w_.s.factors[row] = none;
    if (plan_.is_foreign && blockIdx.x == 0 && i == 0) {
      report_fault(w_.p.faults, "linear_site", "plan", 0, plan_.tag);
    }
    w_.meet();
    if (has_tile) {
      const int words[8] = {rows[0].x, rows[0].y, rows[0].z, rows[0].w,
                            rows[1].x, rows[1].y, rows[1].z, rows[1].w};
      const int num_rows = head.y & 0xffff, num_tiles = head.y >> 16;
      int rank = min(min(a.rank, b.rank), min(num_tiles * kTileRanks, c.max_rank));
      if (a.data == nullptr || b.data == nullptr) rank = 0;
      RowTileOfSlice& to = w_.s.row_tiles[i];
      to.b = b.data;
      to.row_stride = static_cast<int32_t>(b.row_stride);
      to.rank = rank;
      to.num_rows = num_rows;
#pragma unroll
      for (int r = 0; r < lora::kRowTileRows; ++r) {
        if (r >= num_rows) break;
        const int row = words[r / 2] >> r % 2 * 16 & 0xffff;
        to.rows[r] = static_cast<uint8_t>(row);
        if (rank > 0) {
          w_.s.factors[row] = {c.row_scale != nullptr ? b.scale * c.row_scale[row] : b.scale, true};
        }
        for (int tile = 0; tile < num_tiles; ++tile) {
          w_.s.partial_rows[first_partial + tile * num_rows + r] = {row, tile, rank};
        }
      }
    }
    w_.meet();
  }

  /// h of a row and two ranks: the sum of all chains.
  [[nodiscard]] __device__ float2 sum_chains(const float* sums) const {
    const int64_t stride = int64_t{plan_.num_partials} * kTileRanks;
    float2 chain[lora::kChains];
#pragma unroll
    for (int i = 0; i < lora::kChains; ++i) {
      chain[i] = {kNoSum, kNoSum};
      if (i < w_.c.num_chains) chain[i] = *reinterpret_cast<const float2*>(sums + i * stride);
    }
#pragma unroll
    for (int step = 1; step < lora::kChains; step *= 2) {
#pragma unroll
      for (int i = 0; i < lora::kChains; i += 2 * step) add(chain[i], chain[i + step]);
    }
    return chain[0];
  }
  static __device__ void add(float2& sum, const float2& v) { sum.x += v.x, sum.y += v.y; }

  /// Puts h of a row and two ranks where lane (g, q) finds it, as hi and lo.
  __device__ void store_h(int row, int of_rank, int rank, const float2& v) const {
    const lora::HPlace place(of_rank, rank);
    const lora::HWords words = lora::split_h<T>({v.x, v.y, 0.0f, 0.0f});
    auto* const to =
        reinterpret_cast<uint32_t*>(w_.s.h + (row * w_.c.h_steps + place.step) * 4 + place.q) +
        rank % 4 / 2;
    to[0] = words.hi[0];
    to[2] = words.lo[0];
  }
  /// h of all rows and ranks of the slice.
  __device__ void gather_h() const {
    const float* const sums = w_.partials_of(slice_, plan_.num_partials);
    constexpr int kPairs = kTileRanks / 2;
    for (int i = w_.thread(); i < plan_.num_partials * kPairs; i += kLoraThreads) {
      const PartialRow of = w_.s.partial_rows[i / kPairs];
      const int first = of.first_rank(), rank = first + i % kPairs * 2;
      if (first >= of.rank()) continue;
      float2 h{};
      if (rank < of.rank()) h = sum_chains(sums + i * 2);
      if (rank + 1 >= of.rank()) h.y = 0.0f;
      store_h(of.row(), of.rank(), rank, h);
      // Products take 32 ranks at once where there are more than 16.
      const bool is_odd_last = first % 32 == 0 && first + kTileRanks >= of.rank();
      if (of.rank() > kTileRanks && is_odd_last) {
        store_h(of.row(), of.rank(), rank + kTileRanks, float2{});
      }
    }
  }

  // An output's place in a stage, in rows: the lanes of a product, which have the outputs 4 g + i
  // of 32, read eight rows that follow each other. So output o has row o % 4 * 8 + o / 4.

  /// Starts the copies of a piece of B: rows of two or four vectors of 8 ranks.
  __device__ void load_piece(const Cursor& at, int first, std::byte* stage) const {
    const RowTileOfSlice& tile = at.row_tile();
    const bool is_narrow = at.is_narrow();
    const int shift = is_narrow ? 1 : 2, vector = w_.lane() & ((1 << shift) - 1);
    const int output = w_.lane() >> shift, step = 32 >> shift;  // outputs of a copy of all lanes
    const int rank = at.first_rank() + vector * 8;
    const int bytes = min(max(tile.rank - rank, 0), 8) * 2, left = at.num_outputs() - at.output();
    const T* const from = static_cast<const T*>(tile.b) + rank +
                          int64_t{first + at.output() + output} * tile.row_stride;
    std::byte* const to = stage + vector * 16 + ((output % 4 * 8 + output / 4) << shift) * 16;
#pragma unroll
    for (int i = 0; i < kExpandStageBytes / 16 / 32; ++i) {
      const bool in_range = bytes > 0 && output + i * step < left;
      const int row = is_narrow ? i / 2 * 32 + i % 2 * 4 : i * 2;  // of i * step outputs
      std::byte* const to_row = to + (row << shift) * 16;
      const T* const from_row =
          in_range ? from + i * step * tile.row_stride : static_cast<const T*>(tile.b);
      if (bytes == 8) {  // the last four ranks: 16 bytes may end after the weights
        copy_async_8(to_row, from_row, in_range);
        copy_async_8(to_row + 8, from_row, false);
      } else {
        copy_async_16(to_row, from_row, in_range ? bytes : 0);
      }
    }
  }

  [[nodiscard]] __device__ uint4 h_of(int row, int step) const {
    return row >= 0 ? w_.s.h[(row * w_.c.h_steps + step) * 4 + lane_q()] : uint4{0, 0, 0, 0};
  }
  static __device__ void multiply_step(const uint2 (&b)[4], const uint4& h, float (&sum)[2][4]) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint2 &low = b[2 * pair], &high = b[2 * pair + 1];
      const uint32_t a[4] = {low.x, high.x, low.y, high.y};
      mma_m16n8k16<T>(sum[pair], a, h.x, h.y);
      mma_m16n8k16<T>(sum[pair], a, h.z, h.w);
    }
  }
  /// Where the sums of a row of the row tile go, of the tile's first output; null where there is no
  /// such row.
  [[nodiscard]] __device__ float* delta_of(const RowTileOfSlice& tile, int row) const {
    return row < tile.num_rows ? w_.s.delta + tile.rows[row] * w_.s.delta_stride : nullptr;
  }
  /// A piece of an adapter of up to 16 ranks: 64 outputs, of which a lane has 4 g + [0, 4) of each
  /// 32, times all ranks.
  __device__ void multiply_narrow(const Cursor& at, const std::byte* stage) const {
    const RowTileOfSlice& tile = at.row_tile();
    const std::byte* const from = stage + lane_g() * 32 + lane_q() * 8;
    const int column = at.output() + 4 * lane_g(), num = at.num_outputs();
    uint2 b[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        b[half][i] = *reinterpret_cast<const uint2*>(from + half * 1024 + i * 256);
      }
    }
#pragma unroll 1
    for (int first = 0; first < tile.num_rows; first += kProductTileRows) {
      const int row = first + lane_g();
      const uint4 h = h_of(row < tile.num_rows ? tile.rows[row] : -1, 0);
      float sum[2][2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) multiply_step(b[half], h, sum[half]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float* const to = delta_of(tile, first + 2 * lane_q() + j);
        if (to == nullptr) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (column + half * kHalfOutputs < num) {
            put_sums(to + column + half * kHalfOutputs, sum[half], j);
          }
        }
      }
    }
  }
  /// A piece of another adapter: 32 outputs times 32 ranks. Its sums go through shared memory from
  /// piece to piece.
  __device__ void multiply_wide(const Cursor& at, const std::byte* stage) const {
    const RowTileOfSlice& tile = at.row_tile();
    const std::byte* const from = stage + lane_g() * 64 + lane_q() * 16;
    const int column = at.output() + 4 * lane_g();
    const bool has_column = column < at.num_outputs();
    uint2 b[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 v = *reinterpret_cast<const uint4*>(from + i * 512);
      b[0][i] = {v.x, v.y};
      b[1][i] = {v.z, v.w};
    }
#pragma unroll 1
    for (int first = 0; first < tile.num_rows; first += kProductTileRows) {
      float* to[2];
      float sum[2][4] = {};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        to[j] = has_column ? delta_of(tile, first + 2 * lane_q() + j) : nullptr;
        if (at.first_rank() == 0 || to[j] == nullptr) continue;
        const float4 before = *reinterpret_cast<const float4*>(to[j] + column);
        sum[0][j] = before.x, sum[0][2 + j] = before.y;
        sum[1][j] = before.z, sum[1][2 + j] = before.w;
      }
      const int row = first + lane_g();
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        multiply_step(
            b[step],
            h_of(row < tile.num_rows ? tile.rows[row] : -1, at.first_rank() / kTileRanks + step),
            sum);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (to[j] != nullptr) put_sums(to[j] + column, sum, j);
      }
    }
  }
  static __device__ void put_sums(float* to, const float (&sum)[2][4], int j) {
    *reinterpret_cast<float4*>(to) = {sum[0][j], sum[0][2 + j], sum[1][j], sum[1][2 + j]};
  }

  const AdapterWarp& w_;
  CopyRing ring_;
  lora::WindowHead plan_;
  int slice_ = -1,
      early_slot_ = -1;  // early_slot_: the slot that this thread's row tile probably has
};

}  // namespace heddle::cuda::linear_site
