// Verification on a GPU: the same decisions as the reference, which those of the CPU equal.
#include <vector>

#include "cuda/check.h"
#include "cuda_test.h"

#include "device_buffer.h"
#include "device_mirror.h"
#include "expect_error.h"
#include "graph_timing_cuda.h"
#include "ops/verify/test/verify_test_body.h"
#include "random.h"
#include "scoped_validation.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

struct Kind {
  bool is_tree, stochastic, use_q;
};

std::ostream& operator<<(std::ostream& os, const Kind& kind) {
  return os << (kind.is_tree ? "trees" : "chains") << (kind.stochastic ? ", stochastic" : "")
            << (kind.use_q ? "" : ", one-hot");
}

class VerifyCuda : public CudaTestWith<Kind> {
 protected:
  VerifyRun run_of(int64_t max_accepted) {
    return {.is_tree = GetParam().is_tree,
            .stochastic = GetParam().stochastic,
            .use_q = GetParam().use_q,
            .max_accepted = max_accepted,
            .gap = random_int(0, 3),
            .ctx = cuda_context(),
            .mirror = &mirror_};
  }
  static VerifyBatch random_batch(int64_t num_seqs, int64_t vocab_size, int64_t most) {
    VerifyBatch batch;
    batch.vocab_size = vocab_size;
    for (int64_t seq = 0; seq < num_seqs; ++seq) {
      add_request(rng(), batch,
                  {.num_drafts = random_int(0, most),
                   .is_tree = GetParam().is_tree,
                   .noise = pick({0.1f, 0.5f, 2.0f}),
                   .zeros = pick<int64_t>({0, 2, 10}),
                   .placeholders = pick<int64_t>({0, 4})});
    }
    return batch;
  }

 private:
  DeviceMirror mirror_{random_int(0, 1) == 1 ? DeviceMirror::Guards::kBoth
                                             : DeviceMirror::Guards::kFlush};
};
INSTANTIATE_TEST_SUITE_P(Kinds, VerifyCuda,
                         ::testing::Values(Kind{false, false, true}, Kind{true, false, true},
                                           Kind{false, true, true}, Kind{false, true, false},
                                           Kind{true, true, true}, Kind{true, true, false}));

TEST_P(VerifyCuda, DecidesAsTheReference) {
  const auto vocab_sizes = small_sizes() ? std::vector<int64_t>{3, 1025}
                                         : std::vector<int64_t>{1, 3, 17, 1000, 1025, 5000};
  for (const int64_t vocab_size : vocab_sizes) {
    for (const int64_t most :
         small_sizes() ? std::vector<int64_t>{0, 5} : std::vector<int64_t>{0, 1, 5, 40}) {
      if (vocab_size > 1025 && most > 5) continue;
      const VerifyBatch batch = random_batch(random_int(1, small_or(3, 9)), vocab_size, most);
      for (const int64_t max_accepted : {most, most / 2}) {
        const VerifyRun run = run_of(max_accepted);
        expect_reference(batch, run, run_verify<int32_t, int64_t>(batch, run));
        expect_reference(batch, run, run_verify<int64_t, int32_t>(batch, run));
      }
    }
  }
}

TEST_P(VerifyCuda, TakesAnyNumberOfRequestsAndGivesTheSameAgain) {
  const VerifyBatch batch = random_batch(small_or(100, 70000), 3, 2);
  const VerifyRun run = run_of(2);
  const auto verdicts = run_verify<int32_t, int32_t>(batch, run);
  expect_reference(batch, run, verdicts);
  EXPECT_EQ((run_verify<int32_t, int32_t>(batch, run)), verdicts);
}

TEST_P(VerifyCuda, TakesVocabulariesOfManyChunks) {
  for (const int64_t vocab_size : {small_or(1100, 32000), small_or(2100, 524289 + 70)}) {
    const VerifyBatch batch = random_batch(3, vocab_size, 2);
    const VerifyRun run = run_of(2);
    expect_reference(batch, run, run_verify<int64_t, int64_t>(batch, run));
  }
}

TEST_P(VerifyCuda, EmptyBatchesAreANoOp) {
  EXPECT_TRUE((run_verify<int64_t, int64_t>(VerifyBatch{}, run_of(3)).empty()));
}

class VerifyCudaCalls : public CudaTest {};

TEST_F(VerifyCudaCalls, TreeKvMovesPutThePathBehindItsRoot) {
  constexpr int64_t kSeqs = 3, kDepth = 3;
  const DeviceBuffer<int32_t> nodes(std::vector<int32_t>{0, 2, 5, 1, -1, -1, -1, -1, -1});
  const DeviceBuffer<int64_t> accepted(std::vector<int64_t>{3, 1, 0});
  const DeviceBuffer<int32_t> roots(std::vector<int32_t>{10, 0, 7});
  const DeviceBuffer<int64_t> from(kSeqs * kDepth);
  const DeviceBuffer<int32_t> to(kSeqs * kDepth);
  tree_kv_moves(cuda_context(), from.view({kSeqs, kDepth}), to.view({kSeqs, kDepth}),
                nodes.view({kSeqs, kDepth}), accepted.view({kSeqs}), roots.view({kSeqs}));
  EXPECT_EQ(from.download(), (std::vector<int64_t>{11, 13, 16, 2, -1, -1, -1, -1, -1}));
  EXPECT_EQ(to.download(), (std::vector<int32_t>{11, 12, 13, 1, -1, -1, -1, -1, -1}));
  EXPECT_TRUE(from.guards_intact() && to.guards_intact());
}

/// One request with the drafts 7 8 of which the target confirms the first.
struct Call {
  DeviceBuffer<int64_t> tokens{3}, count{1};
  DeviceBuffer<int32_t> drafts{std::vector<int32_t>{7, 8}}, indptr{std::vector<int32_t>{0, 2}};
  DeviceBuffer<int64_t> targets{std::vector<int64_t>{7, 5, 4}};

  void operator()(const ExecContext& ctx) const {
    verify_greedy(ctx, tokens.view({1, 3}), count.view({1}), drafts.view({2}), targets.view({3}),
                  indptr.view({2}));
  }
};

TEST_F(VerifyCudaCalls, ACapturedCallTakesOtherDrafts) {
  const DeviceStream stream;
  Call call;
  const ExecContext ctx = cuda_context(stream.get());
  call(ctx);
  stream.wait();
  const RecordedGraph graph(stream.get(), [&] { call(ctx); });
  EXPECT_EQ(call.tokens.download(), (std::vector<int64_t>{7, 5, -1}));
  call.drafts.upload(std::vector<int32_t>{7, 5});
  call.tokens.poison();
  graph.launch(stream.get());
  stream.wait();
  EXPECT_EQ(call.tokens.download(), (std::vector<int64_t>{7, 5, 4}));
  EXPECT_EQ(call.count.download(), (std::vector<int64_t>{2}));
}

TEST_F(VerifyCudaCalls, ValidationNamesRowAndValue) {
  const ScopedValidation validation;
  Call call;
  call(cuda_context());
  call.indptr.upload(std::vector<int32_t>{0, 3});
  expect_invalid({"draft_indptr[1] is 3, expected at most num_drafts = 2"},
                 [&] { call(cuda_context()); });
}

}  // namespace
}  // namespace heddle::testing
