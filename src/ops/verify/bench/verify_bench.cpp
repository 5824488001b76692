#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/verify.h"

#include "ops/verify/test/verify_cases.h"

namespace heddle {
namespace {

/// A distribution that falls about as rank^-1.5, like a language model's; `noise` moves each logit.
std::vector<float> language_like(Generator& rng, int64_t vocab_size, float noise) {
  Generator ranks(1);  // one ranking for target and draft model
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  std::uniform_real_distribution<float> uniform(1e-6f, 1.0f);
  for (float& x : logits) x = -1.5f * std::log(uniform(ranks));
  return noisy_softmax(rng, logits, noise, 0);
}

/// Requests of one shape. All rows of target_probs (and of draft_probs) have the same values, each
/// in memory of its own, so that a batch is as cold as after a forward pass.
VerifyBatch make_batch(int64_t num_seqs, int64_t num_drafts, bool is_tree, int64_t vocab_size) {
  Generator rng(1);
  VerifyBatch batch;
  batch.vocab_size = vocab_size;
  const std::vector<float> p = language_like(rng, vocab_size, 0.0f);
  const std::vector<float> q = language_like(rng, vocab_size, 0.5f);
  std::discrete_distribution<int64_t> draw(q.begin(), q.end());
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    for (int64_t i = 0; i <= num_drafts; ++i) {
      batch.target_probs.insert(batch.target_probs.end(), p.begin(), p.end());
      batch.target_tokens.push_back(1);
      if (i == num_drafts) continue;
      batch.draft_probs.insert(batch.draft_probs.end(), q.begin(), q.end());
      batch.parents.push_back(is_tree ? (i + 3) / 4 - 1 : i - 1);  // four children to a node
      batch.tokens.push_back(draw(rng));
    }
    batch.indptr.push_back(batch.num_drafts());
    batch.seed.push_back(seq);
    batch.step.push_back(0);
  }
  return batch;
}

/// What the ops write, and views of what they read.
struct Arguments {
  VerifyBatch batch;
  int64_t max_accepted;
  std::vector<int64_t> masks = batch.masks<int64_t>(1);
  std::vector<int32_t> tokens = std::vector<int32_t>(size_t(batch.num_seqs() * (max_accepted + 1)));
  std::vector<int32_t> nodes = std::vector<int32_t>(size_t(batch.num_seqs() * max_accepted));
  std::vector<int32_t> counts = std::vector<int32_t>(size_t(batch.num_seqs()));

  TensorView tokens_view() {
    return host_view(tokens.data(), {batch.num_seqs(), max_accepted + 1});
  }
  TensorView nodes_view() { return host_view(nodes.data(), {batch.num_seqs(), max_accepted}); }
  TensorView counts_view() { return host_view(counts.data(), {batch.num_seqs()}); }
  [[nodiscard]] ConstTensorView drafts() const { return vector(batch.tokens); }
  [[nodiscard]] ConstTensorView indptr() const { return vector(batch.indptr); }
  [[nodiscard]] ConstTensorView targets() const { return vector(batch.target_tokens); }
  [[nodiscard]] ConstTensorView step() const { return vector(batch.step); }
  [[nodiscard]] ConstTensorView seed() const { return vector(batch.seed); }
  [[nodiscard]] ConstTensorView mask_view() const {
    return host_view(masks.data(), {batch.num_drafts(), 1});
  }
  [[nodiscard]] ConstTensorView p() const { return rows(batch.target_probs); }
  [[nodiscard]] ConstTensorView q() const { return rows(batch.draft_probs); }

  static ConstTensorView vector(const std::vector<int64_t>& values) {
    return host_view(values.data(), {static_cast<int64_t>(values.size())});
  }
  [[nodiscard]] ConstTensorView rows(const std::vector<float>& values) const {
    const auto n = static_cast<int64_t>(values.size());
    return host_view(values.data(), {n / batch.vocab_size, batch.vocab_size});
  }
};

void report(benchmark::State& state, const Arguments& a) {
  double accepted = 0.0;
  for (const int32_t count : a.counts) accepted += count;
  state.counters["accepted"] = accepted / static_cast<double>(a.batch.num_seqs());
  state.SetItemsProcessed(state.iterations() * a.batch.num_seqs());
}

void run_greedy(benchmark::State& state, int64_t num_drafts, bool is_tree) {
  Arguments a{make_batch(256, num_drafts, is_tree, 16), is_tree ? 8 : num_drafts};
  for (int64_t seq = 0; seq < a.batch.num_seqs();
       ++seq) {  // the target confirms two drafts in three
    const int64_t begin = a.batch.indptr[size_t(seq)];
    for (int64_t i = num_drafts; i-- > 0;) {
      const int64_t parent = a.batch.parents[size_t(begin + i)];
      if ((seq + i) % 3 == 0) continue;
      a.batch.target_tokens[size_t(begin + seq + 1 + parent)] = a.batch.tokens[size_t(begin + i)];
    }
  }
  for (auto _ : state) {
    if (is_tree) {
      verify_tree_greedy({}, a.tokens_view(), a.counts_view(), a.nodes_view(), a.drafts(),
                         a.targets(), a.mask_view(), a.indptr());
    } else {
      verify_greedy({}, a.tokens_view(), a.counts_view(), a.drafts(), a.targets(), a.indptr());
    }
    benchmark::ClobberMemory();
  }
  report(state, a);
}

void run_stochastic(benchmark::State& state, int64_t num_seqs, int64_t num_drafts, bool is_tree,
                    int64_t vocab_size, bool use_q) {
  Arguments a{make_batch(num_seqs, num_drafts, is_tree, vocab_size), is_tree ? 8 : num_drafts};
  const ConstTensorView q = use_q ? a.q() : ConstTensorView{};
  for (auto _ : state) {
    if (is_tree) {
      verify_tree_stochastic({}, a.tokens_view(), a.counts_view(), a.nodes_view(), a.drafts(), q,
                             a.p(), a.mask_view(), a.indptr(), a.seed(), a.step());
    } else {
      verify_stochastic({}, a.tokens_view(), a.counts_view(), a.drafts(), q, a.p(), a.indptr(),
                        a.seed(), a.step());
    }
    benchmark::ClobberMemory();
  }
  report(state, a);
}

const bool registered = [] {
  benchmark::RegisterBenchmark("verify/greedy/requests:256/drafts:3", run_greedy, 3, false);
  benchmark::RegisterBenchmark("verify/tree_greedy/requests:256/nodes:64", run_greedy, 64, true);
  for (const bool use_q : {true, false}) {
    for (const int64_t vocab_size : {32000, 128256}) {
      const std::string end =
          std::string(use_q ? "" : "/one_hot") + "/vocab:" + std::to_string(vocab_size);
      benchmark::RegisterBenchmark(("verify/stochastic/requests:256/drafts:3" + end).c_str(),
                                   run_stochastic, 256, 3, false, vocab_size, use_q);
      benchmark::RegisterBenchmark(("verify/tree_stochastic/requests:16/nodes:64" + end).c_str(),
                                   run_stochastic, 16, 64, true, vocab_size, use_q);
    }
  }
  return true;
}();

}  // namespace
}  // namespace heddle
