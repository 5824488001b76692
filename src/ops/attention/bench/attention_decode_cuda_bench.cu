// Times batch_decode on the first GPU.
//   bench_attention_decode_cuda --json FILE [--quick]
// bf16 and f8e4m3 with scales of tokens, head-major pages of 16 in random order. A sample is one
// call's share of a replay of a graph of calls that take other pages each, so that keys and values
// come from memory.
//
// Floors are the bytes of keys, values and scales, each once, at the 4.6 TB/s of plain reads on an
// H200.

#include <algorithm>
#include <utility>
#include <vector>

#include "heddle/ops/attention.h"

#include "core/device_bytes.h"
#include "core/math.h"
#include "ops/attention/bench/codes_cuda.h"
#include "testing/bench_program_cuda.h"

namespace heddle {
namespace {

using testing::DeviceIndices;
using testing::kGpu;
using testing::RandomValues;

constexpr int64_t kPageSize = 16;
constexpr int64_t kColdBytes = int64_t{420} << 20;  // the L2 cache of an H200 has 60 MB
constexpr int64_t kMaxBytes = int64_t{18} << 30, kMaxQuickBytes = int64_t{1} << 30;
constexpr size_t kWorkspaceBytes = size_t{128} << 20;

struct Case {
  int64_t batch, length;
  int64_t q_heads = 32, kv_heads = 8, head_dim = 128;
  bool rotates = false;
  int64_t others = 0;  // further sequences, of one token
  bool has_codes = false;
  int64_t queries = 1;  // of each of the sequences that are as long as the batch's
  bool bundled = false;

  [[nodiscard]] int64_t num_seqs() const { return batch * queries + others; }
  [[nodiscard]] int64_t pages_of_seq() const { return ceil_div(length, kPageSize); }
  [[nodiscard]] int64_t num_pages() const { return batch * pages_of_seq() + others; }
  [[nodiscard]] int64_t bytes() const {
    const int64_t of_head = has_codes ? head_dim + int64_t{sizeof(float)} : 2 * head_dim;
    return 2 * (batch * length + others) * kv_heads * of_head;
  }
};

std::vector<Case> cases(bool is_quick) {
  std::vector<Case> all;
  for (const auto& [q_heads, kv_heads] : {std::pair{32, 8}, {32, 32}, {64, 8}}) {
    for (const int64_t batch : {1, 8, 32, 64, 128, 256}) {
      for (const int64_t length : {512, 2048, 8192, 32768}) {
        all.push_back({batch, length, q_heads, kv_heads});
      }
    }
  }
  for (const int64_t batch : {32, 128}) {
    all.push_back({.batch = batch, .length = 2048, .rotates = true});
  }
  for (const int64_t dim : {64, 80, 96, 112, 192, 256}) {
    all.push_back({.batch = 64, .length = 2048, .head_dim = dim});
  }
  all.push_back({.batch = 1, .length = 32768, .others = 63});
  for (const auto& [batch, length] : {std::pair{1, 2048}, {8, 2048}, {32, 2048}, {32, 8192}}) {
    for (const int64_t queries : {2, 4, 8}) {
      for (const bool bundled : {false, true}) {
        all.push_back({.batch = batch, .length = length, .queries = queries, .bundled = bundled});
      }
    }
  }
  for (Case c : std::vector<Case>(all)) {
    const bool is_of_shape = c.q_heads == 32 && c.kv_heads == 8 && !c.rotates && c.queries == 1;
    if (!is_of_shape) continue;
    c.has_codes = true;
    all.push_back(c);
  }
  const int64_t most = is_quick ? kMaxQuickBytes : kMaxBytes;
  std::erase_if(all, [&](const Case& c) { return c.bytes() > most; });
  return all;
}

/// The first page of each sequence, and the end. Queries of one sequence list the same pages.
std::vector<int32_t> page_starts(const Case& c) {
  std::vector<int32_t> starts{0};
  for (int64_t i = 0; i < c.num_seqs(); ++i) {
    const bool is_long = i < c.batch * c.queries;
    starts.push_back(starts.back() + static_cast<int32_t>(is_long ? c.pages_of_seq() : 1));
  }
  return starts;
}
/// The pages of all parts: [part][listed page of the part], of a pool in random order.
std::vector<int32_t> listed_pages(const Case& c, int64_t parts) {
  const std::vector<int32_t> pool = testing::shuffled(parts * c.num_pages());
  std::vector<int32_t> listed;
  for (int64_t part = 0; part < parts; ++part) {
    const auto begin = pool.begin() + part * c.num_pages();
    for (int64_t i = 0; i < c.batch * c.queries; ++i) {
      const auto row = begin + i / c.queries * c.pages_of_seq();
      listed.insert(listed.end(), row, row + c.pages_of_seq());
    }
    listed.insert(listed.end(), begin + c.batch * c.pages_of_seq(), begin + c.num_pages());
  }
  return listed;
}
/// The last query of a sequence has c.length keys, those before it one less each.
std::vector<int32_t> last_page_lengths(const Case& c) {
  std::vector<int32_t> lengths(static_cast<size_t>(c.num_seqs()), 1);
  for (int64_t i = 0; i < c.batch * c.queries; ++i) {
    const int64_t before = c.queries - 1 - i % c.queries;
    lengths[static_cast<size_t>(i)] =
        static_cast<int32_t>(c.length - before - (c.pages_of_seq() - 1) * kPageSize);
  }
  return lengths;
}
std::vector<int32_t> bundle_starts(const Case& c) {
  std::vector<int32_t> starts{0};
  for (int64_t i = 0; i < c.num_seqs();) {
    i += std::min(i < c.batch * c.queries ? c.queries : int64_t{1}, c.num_seqs() - i);
    starts.push_back(static_cast<int32_t>(i));
  }
  return starts;
}
/// A cache of which each of `parts` calls takes its own part.
class Batch {
 public:
  Batch(const Case& c, int64_t parts)
      : c_(c),
        parts_(parts),
        q_(c.num_seqs() * c.q_heads * c.head_dim),
        o_(c.num_seqs() * c.q_heads * c.head_dim),
        pool_(2 * parts * c.num_pages() * c.kv_heads * kPageSize * c.head_dim /
              (c.has_codes ? 2 : 1)),
        scales_(c.has_codes ? 4 * parts * c.num_pages() * c.kv_heads * kPageSize : 1),
        page_indptr_(page_starts(c)),
        last_page_len_(last_page_lengths(c)),
        pages_(listed_pages(c, parts)),
        bundles_(bundle_starts(c)) {
    if (!c.has_codes) return;
    const int64_t codes = 2 * parts * c.num_pages() * c.kv_heads * kPageSize * c.head_dim;
    fill_codes(pool_.data(), codes);
    fill_scales(scales_.data(), codes / c.head_dim);
  }

  void decode(const ExecContext& ctx, int call) const {
    const int64_t num_pages = parts_ * c_.num_pages();
    const TensorView all(pool_.data(), c_.has_codes ? DType::kFloat8E4M3 : DType::kBFloat16, kGpu,
                         {2 * num_pages, c_.kv_heads, kPageSize, c_.head_dim});
    const TensorView k = all.narrow(0, 0, num_pages), v = all.narrow(0, num_pages, num_pages);
    const TensorView scales(scales_.data(), DType::kFloat32, kGpu,
                            {2 * num_pages, c_.kv_heads, kPageSize});
    const PagedKv cache = c_.has_codes ? PagedKv::from_pool(k, v, scales.narrow(0, 0, num_pages),
                                                            scales.narrow(0, num_pages, num_pages))
                                       : PagedKv::from_pool(k, v);
    const int64_t num_listed = c_.batch * c_.queries * c_.pages_of_seq() + c_.others;
    const PageTable table{page_indptr_.view(),
                          pages_.view().narrow(0, call % parts_ * num_listed, num_listed),
                          last_page_len_.view()};
    AttentionOptions options;
    if (c_.rotates) options.rope = RopeParams{};
    if (c_.bundled) {
      options.bundle_indptr = bundles_.view();
      options.max_bundle = c_.queries;
    }
    batch_decode(ctx, rows(o_), {}, rows(q_), cache, table, options);
  }

 private:
  [[nodiscard]] TensorView rows(const RandomValues& values) const {
    return {values.data(), DType::kBFloat16, kGpu, {c_.num_seqs(), c_.q_heads, c_.head_dim}};
  }

  Case c_;
  int64_t parts_;
  RandomValues q_, o_, pool_, scales_;
  DeviceIndices page_indptr_, last_page_len_, pages_, bundles_;
};

void run(testing::BenchProgram& program) {
  CudaContext context(kGpu, program.stream(), kWorkspaceBytes);
  for (const Case& c : cases(program.is_quick())) {
    const auto parts = std::clamp<int64_t>(kColdBytes / c.bytes() + 1, 1, 64);
    const int calls = c.bytes() > kMaxQuickBytes ? 2 : std::max(static_cast<int>(parts), 4);
    const Batch batch(c, parts);
    const std::vector<double> samples = testing::time_in_graph(
        program.stream(), calls, [&](int call) { batch.decode(context.exec(), call); },
        {3, program.is_quick() ? 5 : 11});
    const auto bytes = static_cast<double>(c.bytes());
    program.add({{"op", c.has_codes ? "batch_decode, f8e4m3" : "batch_decode"},
                 {"q_heads", c.q_heads},
                 {"kv_heads", c.kv_heads},
                 {"head_dim", c.head_dim},
                 {"batch", c.batch},
                 {"kv_len", c.length},
                 {"others_of_one_token", c.others},
                 {"rope", int{c.rotates}},
                 {"queries", c.queries},
                 {"bundled", int{c.bundled}},
                 {"bytes", c.bytes()},
                 {"calls_in_graph", calls}},
                bytes / testing::kReadBytesPerUs, samples);
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
