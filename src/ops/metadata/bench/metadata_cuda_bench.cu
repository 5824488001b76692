// Times the metadata ops on the first GPU, in a graph and from the host, at 256 requests where a
// batch does not have more; indices are contiguous i32 where it does not say what they are.
//   bench_metadata_cuda --json FILE [--quick]
// A sample is one call's share of a replay of kCalls calls, made one after the other, or of kCalls
// calls from the host into a stream that is empty at first. For comparison: an empty kernel with as
// many bytes of parameters, which is what every launch takes.
//
// Floors are bytes at 4.6 TB/s; all but those of the wide tables are far below a launch, so what
// counts is a chain of latencies: the launch and its parameters, which overlap the call before
// (cuda/early_launch.h); two reads one after the other, the barriers between them, the instructions
// of one thread, and the writes.

#include <numeric>
#include <string>
#include <vector>

#include "heddle/ops/metadata.h"

#include "testing/bench_program_cuda.h"

namespace heddle {
namespace {

constexpr int64_t kSeqs = 256, kManySeqs = 1000;
constexpr int kCalls = 100;

using Values = std::vector<int32_t>;

/// What the elements of a tensor are, and how many elements apart they lie.
struct Elements {
  constexpr Elements(DType type = DType::kInt32, int64_t gap = 1)  // NOLINT
      : dtype(type), step(gap) {}

  DType dtype;
  int64_t step;
};

/// An i32 or i64 tensor on the device.
class Tensor : public testing::DeviceIndices {
 public:
  explicit Tensor(const Values& values, Elements of = {})
      : DeviceIndices(std::vector<int64_t>(values.begin(), values.end()), of.dtype, of.step) {}
  explicit Tensor(int64_t size, int32_t value = 0, Elements of = {})
      : Tensor(Values(size_t(size), value), of) {}

  [[nodiscard]] TensorView vector() const { return view(); }
  [[nodiscard]] TensorView rows(int64_t num_rows) const { return table(view().size(0) / num_rows); }
};

struct EmptyParams {
  char bytes[216];  // as the largest conversion has
};
__global__ void empty_kernel(const __grid_constant__ EmptyParams) {}

class Bench {
 public:
  explicit Bench(testing::BenchProgram& program) : program_(program) {}

  /// Times call(ctx) in a graph and from the host. `bytes` is what it has to read and write.
  template <class Call>
  void time(const std::string& op, const std::string& batch, int64_t bytes, const Call& call,
            int64_t num_seqs = kSeqs) {
    const ExecContext& ctx = program_.context().exec();
    const cudaStream_t stream = program_.stream();
    call(ctx);  // loads the kernel
    HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream));
    const testing::Replays replays{.warm_up = 3, .timed = program_.is_quick() ? 9 : 51};
    const auto add = [&](const char* form, const std::vector<double>& samples) {
      program_.add(
          {{"op", op}, {"batch", batch}, {"form", form}, {"requests", num_seqs}, {"calls", kCalls}},
          double(bytes) / testing::kReadBytesPerUs, samples);
    };
    const auto one_call = [&](auto...) { call(ctx); };
    add("graph", testing::time_in_graph(stream, kCalls, one_call, replays));
    add("host", testing::time_on_host(stream, kCalls, one_call, replays));
  }
  void time_empty_kernel() {
    time("launch", "empty kernel", 0, [&](const ExecContext& ctx) {
      empty_kernel<<<1, 32, 0, ctx.stream>>>(EmptyParams{});
      HEDDLE_CUDA_CHECK(cudaGetLastError());
    });
  }

 private:
  testing::BenchProgram& program_;
};

Values starts_of(const Values& lengths) {
  Values starts(1 + lengths.size(), 0);
  std::partial_sum(lengths.begin(), lengths.end(), starts.begin() + 1);
  return starts;
}

/// The elements of a batch: of page tables, of slots and ids, of cumulative lengths of pages, slots
/// and ids, and of lengths and cumulative lengths of tokens.
struct BatchDTypes {
  const char* suffix = "";
  Elements pages{}, ids{}, starts{}, lengths{};
};
constexpr DType kI64 = DType::kInt64;
constexpr Elements kStrided{DType::kInt32, 2}, kStrided64{DType::kInt64, 2};
constexpr BatchDTypes kBatchDTypes[] = {
    {},
    {", LoRAX's dtypes", DType::kInt32, kI64, kI64},
    {", i64", kI64, kI64, kI64, kI64},
    {", the other mix", kI64, DType::kInt32, DType::kInt32, kI64},
    {", strided", kStrided, kStrided, kStrided, kStrided},
    {", strided i64", kStrided64, kStrided64, kStrided64, kStrided64}};

/// The conversions on rows of these lengths, in tables of `width` columns.
void time_conversions(Bench& bench, const std::string& name, const Values& lengths, int64_t width,
                      const BatchDTypes& dtypes = {}) {
  const std::string batch = name + dtypes.suffix;
  const Values cu = starts_of(lengths);
  const int64_t total = cu.back();
  const int64_t n = std::ssize(lengths);
  const int64_t copied_pages = 2 * total * size_of(dtypes.pages.dtype);
  const int64_t copied_ids = 2 * total * size_of(dtypes.ids.dtype);
  const Tensor tables(n * width, 3, dtypes.pages), ragged(total, 0, dtypes.pages),
      pages(total, 5, dtypes.pages);
  const Tensor input(lengths, dtypes.lengths), zeros(n, 0, dtypes.lengths);
  const Tensor cu_seqlens(cu, dtypes.lengths), starts(cu, dtypes.starts);
  const Tensor positions(total, 0, dtypes.lengths), slots(total, 5, dtypes.ids),
      filtered(total, 0, dtypes.ids);
  const auto time = [&](const char* op, int64_t bytes, const auto& call) {
    bench.time(op, batch, bytes, call, n);
  };
  time("block_tables_to_ragged", copied_pages, [&](const ExecContext& ctx) {
    block_tables_to_ragged(ctx, ragged.vector(), tables.rows(n), input.vector(), zeros.vector());
  });
  time("block_tables_to_padded", copied_pages, [&](const ExecContext& ctx) {
    block_tables_to_padded(ctx, tables.rows(n), pages.vector(), starts.vector());
  });
  time("prepare_position_slot_ids", copied_ids, [&](const ExecContext& ctx) {
    prepare_position_slot_ids(ctx, positions.vector(), filtered.vector(), input.vector(),
                              cu_seqlens.vector(), starts.vector());
  });
  time("slots_filtering", copied_ids, [&](const ExecContext& ctx) {
    slots_filtering(ctx, filtered.vector(), slots.vector(), starts.vector(),
                    starts.vector().narrow(0, 0, n));
  });
}

/// One step of four tokens each.
void time_new_tokens(Bench& bench, const BatchDTypes& dtypes) {
  const std::string batch = std::string("4 each") + dtypes.suffix;
  const Values accepted(kSeqs, 4), cu = starts_of(accepted);
  const Tensor all(kSeqs * 1024, 0, dtypes.ids), next(4 * kSeqs, 7, dtypes.ids);
  const Tensor cu_accepted(cu, dtypes.starts), cu_seqlens(cu, dtypes.lengths);
  const Tensor cache(kSeqs, 500, dtypes.lengths), input(kSeqs, 1, dtypes.lengths),
      prompt(kSeqs, 100, dtypes.lengths);
  const Tensor positions(4 * kSeqs, 0, dtypes.lengths), slots(4 * kSeqs, 0, dtypes.ids);
  const Tensor cu_slots(starts_of(Values(kSeqs, 508)), dtypes.starts);
  bench.time("prepare_position_slot_ids", batch, 8 * 4 * kSeqs, [&](const ExecContext& ctx) {
    prepare_position_slot_ids(ctx, positions.vector(), slots.vector(), cache.vector(),
                              cu_seqlens.vector(), cu_slots.vector());
  });
  bench.time("copy_next_input_ids_inplace", batch, 8 * 4 * kSeqs, [&](const ExecContext& ctx) {
    copy_next_input_ids_inplace(ctx, all.rows(kSeqs), next.vector(), cu_accepted.vector(),
                                cache.vector(), input.vector(), prompt.vector());
  });
}

/// All outputs of a step with `num_new` tokens each, at some 500 tokens in the cache, pages of 16
/// and 8 adapters; tables have `width` columns, those of batches that are compared the same.
void time_prepare_batch(Bench& bench, const std::string& batch, const Values& num_new,
                        int64_t width, Elements of = {}) {
  constexpr int64_t kSlots = 8;
  const int64_t n = std::ssize(num_new);
  const int64_t tokens = starts_of(num_new).back();
  Values slots(num_new.size());
  for (size_t i = 0; i < slots.size(); ++i)
    slots[i] = static_cast<int32_t>(i * 5 % (kSlots + 1)) - 1;
  const Tensor cache(n, 500, of), accepted(n, 2, of), input(num_new, of), adapters(slots, of);
  const Tensor table(n * width, 3, of), next(tokens, 7, of), cu(starts_of(num_new), of);
  const Tensor q_indptr(n + 1, 0, of), start(n, 0, of), kv(n, 0, of), page_indptr(n + 1, 0, of),
      last(n, 0, of);
  const Tensor pages(n * width, 0, of), padded(n * width, 0, of), all(n * 1024, 0, of),
      overflow(1, 0, of);
  const Tensor positions(tokens, 0, of), kv_slots(tokens, 0, of), seqs(tokens, 0, of),
      ids(tokens, 0, of), slot_ids(tokens, 0, of);
  const Tensor seg_starts(n, 0, of), seg_ends(n, 0, of), seg_slots(n, 0, of), rows(tokens, 0, of),
      indptr(kSlots + 1, 0, of);
  PrepareBatchInputs in;
  in.cache_lengths = cache.vector();
  in.accepted_lengths = accepted.vector();
  in.input_lengths = input.vector();
  in.seq_page_table = table.rows(n);
  in.adapter_slots = adapters.vector();
  in.next_input_ids = next.vector();
  in.next_indptr = cu.vector();
  in.page_size = 16;
  in.accepted_extra = 1;
  PrepareBatchOutputs out;
  out.q_indptr = q_indptr.vector();
  out.start_lengths = start.vector();
  out.kv_lengths = kv.vector();
  out.page_indptr = page_indptr.vector();
  out.last_page_len = last.vector();
  out.pages = pages.vector();
  out.page_table = padded.rows(n);
  out.positions = positions.vector();
  out.kv_slots = kv_slots.vector();
  out.token_to_seq = seqs.vector();
  out.input_ids = ids.vector();
  out.slot_ids = slot_ids.vector();
  out.seg_starts = seg_starts.vector();
  out.seg_ends = seg_ends.vector();
  out.seg_slots = seg_slots.vector();
  out.adapter_rows = rows.vector();
  out.adapter_indptr = indptr.vector();
  out.all_input_ids = all.rows(n);
  out.overflow = overflow.vector();
  const int64_t bytes = 4 * (12 * n + 9 * tokens + 3 * n * width);
  bench.time(
      "prepare_batch", batch, bytes, [&](const ExecContext& ctx) { prepare_batch(ctx, out, in); },
      n);
}

void run(testing::BenchProgram& program) {
  Bench bench(program);
  bench.time_empty_kernel();
  const auto rows_around = [](int32_t mean) {  // 0 to 2 * mean, the same in every run
    Values lengths(kSeqs);
    for (size_t i = 0; i < lengths.size(); ++i) {
      lengths[i] = static_cast<int32_t>(i * 97 % kSeqs * size_t(2 * mean) / (kSeqs - 1));
    }
    return lengths;
  };
  Values skewed(kSeqs, 1);
  skewed[100] = 32'768;
  for (const BatchDTypes& dtypes : kBatchDTypes) {
    time_conversions(bench, "width 512, 253 on average", rows_around(253), 512, dtypes);
  }
  time_conversions(bench, "width 8192, 4093 on average", rows_around(4093), 8192);
  time_conversions(bench, "129 each", Values(kSeqs, 129), 32'768);
  time_conversions(bench, "one of 32768, the others 1", skewed, 32'768);
  time_conversions(bench, "129 each", Values(kManySeqs, 129), 512);
  for (const BatchDTypes& dtypes : kBatchDTypes) time_new_tokens(bench, dtypes);
  time_prepare_batch(bench, "1 token each", Values(kSeqs, 1), 33);
  time_prepare_batch(bench, "4 tokens each", Values(kSeqs, 4), 33);
  time_prepare_batch(bench, "129 tokens each", Values(kSeqs, 129), 2081);
  time_prepare_batch(bench, "one of 32768 tokens, the others 1", skewed, 2081);
  for (const int32_t tokens : {1, 4}) {
    const std::string batch = tokens == 1 ? "1 token each" : "4 tokens each";
    time_prepare_batch(bench, batch + ", strided", Values(size_t(kSeqs), tokens), 33, kStrided);
    time_prepare_batch(bench, batch + ", i64", Values(size_t(kSeqs), tokens), 33, kI64);
    time_prepare_batch(bench, batch, Values(size_t(kManySeqs), tokens), 33);
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
