// libheddle_race.so: heddle's C++ interface for the race of heddle_calls.py, in its process and on
// its arrays, as functions of C. Made with CMake's target heddle_race.

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "heddle/core/cuda_context.h"
#include "heddle/ops/lora.h"

#include "core/device_bytes.h"
#include "testing/graph_timing_cuda.h"

namespace {

using namespace heddle;

constexpr int kMostSlices = 4;
constexpr DType kDtype = DType::kBFloat16;
constexpr int64_t kElement = 2;  // bytes

}  // namespace

extern "C" {
/// One cell; pointers are to device memory.
struct RaceCell {
  int64_t in_features, tokens;
  int64_t out_features[kMostSlices];
  int32_t num_slices, rank, adapters;
  int32_t is_prefill;
  const int32_t *ids, *starts, *ends;  // of rows; of segments
};
}

namespace {

thread_local std::string last_error;

/// One set of arrays: A [adapters, slices * rank, in], B [adapters, out, rank], x and the products
/// of all slices side by side.
struct Set {
  Set(const ExecContext& ctx, const RaceCell& cell, std::byte* a_data, std::byte* b_data,
      std::byte* x_data, std::byte* y_data)
      : a(ctx, cell.adapters, std::vector<int64_t>(size_t(cell.num_slices), cell.in_features),
          cell.rank, kDtype, LoraLayout::kRankMajor, LoraAlignment::k16Bytes),
        b(ctx, cell.adapters,
          std::vector<int64_t>(cell.out_features, cell.out_features + cell.num_slices), cell.rank,
          kDtype, LoraLayout::kRankMinor, LoraAlignment::k16Bytes),
        x(x_data, kDtype, ctx.device, {cell.tokens, cell.in_features}) {
    int64_t out = 0;
    for (int s = 0; s < cell.num_slices; ++s) out += cell.out_features[s];
    for (int slot = 0; slot < cell.adapters; ++slot) {
      for (int s = 0; s < cell.num_slices; ++s) {
        const int64_t width = cell.out_features[s];
        a.set(ctx, slot, s, {a_data, kDtype, ctx.device, {cell.rank, cell.in_features}});
        b.set(ctx, slot, s, {b_data, kDtype, ctx.device, {width, cell.rank}});
        a_data += kElement * cell.rank * cell.in_features;
        b_data += kElement * width * cell.rank;
      }
    }
    for (int s = 0; s < cell.num_slices; ++s) {
      const std::vector<int64_t> shape{cell.tokens, cell.out_features[s]}, strides{out, 1};
      slices.push_back({TensorView(y_data, kDtype, ctx.device, shape, strides)});
      y_data += kElement * cell.out_features[s];
    }
  }
  AdapterTable a, b;
  ConstTensorView x;
  std::vector<LoraSlice> slices;
};

class Race {
 public:
  Race(int device, cudaStream_t stream, const RaceCell& cell)
      : cell_(cell),
        device_{DeviceType::kCuda, device},
        stream_(stream),
        context_(device_, stream,
                 lora_apply_workspace_bytes(device_, cell.tokens, cell.in_features, cell.num_slices,
                                            cell.rank)),
        plan_(allocate_zeroed(device_, lora_plan_bytes(cell.tokens, cell.rank))) {
    const auto of = [&](const int32_t* data, int64_t count) {
      return ConstTensorView(reinterpret_cast<const std::byte*>(data), DType::kInt32, device_,
                             {count});
    };
    batch_ = cell.is_prefill ? LoraBatch::from_segments(of(cell.starts, cell.adapters),
                                                        of(cell.ends, cell.adapters))
                             : LoraBatch::from_ids(of(cell.ids, cell.tokens));
    plan();
    batch_.plan = plan_view();
  }
  void add(void* a, void* b, void* x, void* y) {
    const auto bytes = [](void* data) { return static_cast<std::byte*>(data); };
    sets_.emplace_back(context_.exec(), cell_, bytes(a), bytes(b), bytes(x), bytes(y));
  }
  void call(int i) {
    const Set& set = sets_.at(size_t(i) % sets_.size());
    lora_apply(context_.exec(), set.slices, set.x, set.a.view(), set.b.view(), batch_);
  }
  void plan() {
    LoraBatch batch = batch_;
    batch.plan = {};
    lora_plan(context_.exec(), plan_view(), batch, cell_.tokens, cell_.adapters, cell_.rank);
  }
  void record(int calls, bool is_plan) {
    auto& graph = is_plan ? plan_graph_ : graph_;
    graph = std::make_unique<testing::RecordedGraph>(stream_, [&] {
      for (int i = 0; i < calls; ++i) is_plan ? plan() : call(i);
    });
  }
  void launch(bool is_plan) { (is_plan ? plan_graph_ : graph_)->launch(stream_); }

 private:
  [[nodiscard]] TensorView plan_view() const {
    const auto bytes = static_cast<int64_t>(lora_plan_bytes(cell_.tokens, cell_.rank));
    return {plan_.get(), DType::kUInt8, device_, {bytes}};
  }
  RaceCell cell_;
  Device device_;
  cudaStream_t stream_;
  CudaContext context_;
  DeviceBytes plan_;
  LoraBatch batch_;
  std::deque<Set> sets_;
  std::unique_ptr<testing::RecordedGraph> graph_, plan_graph_;
};

template <class Body>
int guarded(const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return 1;
  }
}

}  // namespace

// All return 0, or 1 where race_error() returns what happened.
extern "C" {
const char* race_error() { return last_error.c_str(); }
int race_open(void** race, int device, cudaStream_t stream, const RaceCell* cell) {
  return guarded([&] { *race = new Race(device, stream, *cell); });
}
void race_close(void* race) { delete static_cast<Race*>(race); }
int race_add(void* race, void* a, void* b, void* x, void* y) {
  return guarded([&] { static_cast<Race*>(race)->add(a, b, x, y); });
}
int race_call(void* race, int i) {
  return guarded([&] { static_cast<Race*>(race)->call(i); });
}
/// Captures `calls` calls, of one set after another, or as many plans.
int race_record(void* race, int calls, int is_plan) {
  return guarded([&] { static_cast<Race*>(race)->record(calls, is_plan != 0); });
}
int race_launch(void* race, int is_plan) {
  return guarded([&] { static_cast<Race*>(race)->launch(is_plan != 0); });
}
}
