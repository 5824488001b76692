// Times the verification of drafts on the first GPU, in a graph.
//   bench_verify_cuda --json FILE [--quick]
// Distributions fall about as rank^-1.5, as a language model's; each row has memory of its own, and
// rows come from memory where all of them are larger than the L2 cache. The floor is an empty
// kernel in a graph, 0.53 us on an H200, and where tokens are drawn one row of the target for each
// request at 4.6 TB/s: a draw reads its row once, and q's if a draft was rejected.

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "heddle/ops/verify.h"

#include "ops/verify/test/verify_cases.h"
#include "testing/bench_program_cuda.h"
#include "testing/device_memory.h"

namespace heddle {
namespace {

using testing::DeviceIndices;

/// Rows of f32 on the GPU, copies of one.
class Rows {
 public:
  Rows(const std::vector<float>& row, int64_t count)
      : count_(count),
        width_(std::ssize(row)),
        memory_(std::max<size_t>(1, row.size() * sizeof(float) * size_t(count))) {
    const size_t bytes = row.size() * sizeof(float);
    for (int64_t r = 0; r < count; ++r) memory_.write(size_t(r) * bytes, row.data(), bytes);
  }
  [[nodiscard]] ConstTensorView view() const {
    if (count_ == 0) return {};
    return {memory_.data(), DType::kFloat32, testing::kGpu, {count_, width_}};
  }

 private:
  int64_t count_, width_;
  testing::DeviceMemory memory_;
};

struct Case {
  int64_t requests, nodes;
  bool is_tree;
  int64_t vocab_size = 0;  // 0: greedy
  bool has_q = false;
};

/// softmax of -1.5 log(rank) in random order, with `noise` on each logit.
std::vector<float> language_like(Generator& rng, int64_t vocab_size, float noise) {
  Generator ranks(1);  // one ranking for target and draft model
  std::uniform_real_distribution<float> uniform(1e-6f, 1.0f);
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (float& x : logits) x = -1.5f * std::log(uniform(ranks));
  return noisy_softmax(rng, logits, noise, 0);
}

/// Requests whose target confirms two drafts in three where it is greedy.
VerifyBatch make_batch(const Case& c, const std::vector<float>& q) {
  Generator rng(1);
  std::discrete_distribution<int64_t> draw(q.begin(), q.end());
  VerifyBatch batch;
  for (int64_t seq = 0; seq < c.requests; ++seq) {
    for (int64_t i = 0; i < c.nodes; ++i) {
      batch.parents.push_back(c.is_tree ? (i + 3) / 4 - 1 : i - 1);  // four children to a node
      batch.tokens.push_back(draw(rng));
    }
    batch.indptr.push_back(batch.num_drafts());
    batch.seed.push_back(seq);
    batch.step.push_back(0);
  }
  batch.target_tokens.resize(size_t(c.requests * (c.nodes + 1)), 1);
  for (int64_t i = batch.num_drafts(); i-- > 0;) {
    const int64_t seq = i / c.nodes, node = i % c.nodes;
    if ((seq + node) % 3 == 0) continue;
    const int64_t row = seq * (c.nodes + 1) + 1 + batch.parents[size_t(i)];
    batch.target_tokens[size_t(row)] = batch.tokens[size_t(i)];
  }
  return batch;
}

/// The tensors of a case on the GPU.
class Batch {
 public:
  Batch(const Case& c, const VerifyBatch& batch, const std::vector<float>& p,
        const std::vector<float>& q)
      : case_(c),
        max_accepted_(c.is_tree ? 8 : c.nodes),
        drafts_(batch.tokens, DType::kInt64),
        indptr_(batch.indptr, DType::kInt64),
        targets_(batch.target_tokens, DType::kInt64),
        masks_(batch.masks<int64_t>(1), DType::kInt64),
        seed_(batch.seed, DType::kInt64),
        step_(batch.step, DType::kInt64),
        tokens_(zeros(max_accepted_ + 1), DType::kInt64),
        nodes_(zeros(max_accepted_), DType::kInt64),
        counts_(zeros(1), DType::kInt64),
        p_(p, c.vocab_size > 0 ? c.requests * (c.nodes + 1) : 0),
        q_(q, c.has_q ? c.requests * c.nodes : 0) {}

  void verify(const ExecContext& ctx) const {
    const TensorView tokens = tokens_.table(max_accepted_ + 1), counts = counts_.view(),
                     nodes = nodes_.table(max_accepted_);
    const ConstTensorView drafts = drafts_.view(), indptr = indptr_.view(), masks = masks_.table(1),
                          seed = seed_.view(), step = step_.view();
    if (case_.vocab_size == 0 && case_.is_tree) {
      verify_tree_greedy(ctx, tokens, counts, nodes, drafts, targets_.view(), masks, indptr);
    } else if (case_.vocab_size == 0) {
      verify_greedy(ctx, tokens, counts, drafts, targets_.view(), indptr);
    } else if (case_.is_tree) {
      verify_tree_stochastic(ctx, tokens, counts, nodes, drafts, q_.view(), p_.view(), masks,
                             indptr, seed, step);
    } else {
      verify_stochastic(ctx, tokens, counts, drafts, q_.view(), p_.view(), indptr, seed, step);
    }
  }
  [[nodiscard]] const char* op() const {
    if (case_.vocab_size == 0) return case_.is_tree ? "verify_tree_greedy" : "verify_greedy";
    return case_.is_tree ? "verify_tree_stochastic" : "verify_stochastic";
  }

 private:
  [[nodiscard]] std::vector<int64_t> zeros(int64_t width) const {
    return std::vector<int64_t>(size_t(case_.requests * width));
  }

  Case case_;
  int64_t max_accepted_;
  DeviceIndices drafts_, indptr_, targets_, masks_, seed_, step_, tokens_, nodes_, counts_;
  Rows p_, q_;
};

void time(testing::BenchProgram& program, const Case& c) {
  Generator rng(1);
  const int64_t vocab_size = c.vocab_size > 0 ? c.vocab_size : 16;
  const std::vector<float> p = language_like(rng, vocab_size, 0.0f),
                           q = language_like(rng, vocab_size, 0.5f);
  const Batch batch(c, make_batch(c, q), p, q);
  const ExecContext& ctx = program.context().exec();
  batch.verify(ctx);  // loads the kernel
  HEDDLE_CUDA_CHECK(cudaStreamSynchronize(program.stream()));
  const std::vector<double> samples = testing::time_in_graph(
      program.stream(), c.vocab_size > 0 ? 10 : 100, [&](int) { batch.verify(ctx); },
      {.warm_up = 3, .timed = program.is_quick() ? 5 : 21});
  std::vector<testing::Fact> facts{
      {"op", batch.op()}, {"requests", c.requests}, {"drafts", c.nodes}};
  if (c.vocab_size > 0) {
    facts.emplace_back("vocabulary", c.vocab_size);
    facts.emplace_back("drafted", c.has_q ? "from q" : "one-hot");
  }
  const double row_us = 4.0 * double(c.requests * c.vocab_size) / testing::kReadBytesPerUs;
  program.add(facts, std::max(testing::kEmptyKernelUs, row_us), samples);
}

void run(testing::BenchProgram& program) {
  for (const int64_t requests : {1, 256}) {
    time(program, {requests, 3, false});
    time(program, {requests, 64, true});
  }
  for (const bool has_q : {true, false}) {
    for (const int64_t vocab_size : {32'000, 128'256}) {
      for (const int64_t requests : {1, 32, 256}) {
        time(program, {requests, 3, false, vocab_size, has_q});
      }
      time(program, {16, 64, true, vocab_size, has_q});
    }
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
