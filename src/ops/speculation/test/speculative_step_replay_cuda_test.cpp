// A captured step, replayed with other tokens, counts, starts and tables.
#include <vector>

#include "cuda/check.h"
#include "cuda_test.h"

#include "heddle/core/cuda_context.h"
#include "heddle/ops/speculation.h"

#include "device_buffer.h"
#include "device_mirror.h"
#include "graph_timing_cuda.h"
#include "ops/speculation/test/propose_ngram_drafts_ref.h"
#include "ops/speculation/test/speculation_cases.h"

namespace heddle::testing {
namespace {

constexpr int64_t kRows = 300;  // two tiles of the block that keeps the list
constexpr int64_t kDrafts = 3, kBlockSize = 2, kMaxBlocks = 6, kTokens = kRows * (1 + kDrafts);

/// A step's tensors in device memory that stays where it is, and the same step on the host.
class ReplayedStep {
 public:
  /// Brings a fresh batch of these requests to the device, in i32 and i64 by turns of tensors.
  void load(int64_t num_decode, int64_t num_prefill) {
    batch_ = random_batch(num_decode, num_prefill, kDrafts, true);
    batch_.input.resize(size_t(kTokens), 7);
    batch_.output.resize(size_t(kTokens), 7);
    batch_.draft_indptr.resize(size_t(kRows + 1), 0);
    kv_ = random_kv(kRows, kMaxBlocks, kBlockSize, kDrafts);
    upload(input_, batch_.input);
    upload(output_, batch_.output);
    upload(indptr_, batch_.draft_indptr);
    upload(counts_, {num_decode, num_prefill});
    Ints offset, length, count, last_id, ids;
    for (const ref::KvRequest& r : kv_) {
      offset.push_back(r.offset);
      length.push_back(r.length);
      count.push_back(r.count);
      last_id.push_back(r.last_id);
      ids.insert(ids.end(), r.ids.begin(), r.ids.end());
    }
    upload(offset_, offset);
    upload(length_, length);
    upload(count_, count);
    upload(last_id_, last_id);
    upload(ids_, ids);
    accepted_.poison();
    released_.poison();
    mask_.poison();
    positions_.poison();
  }

  void record(const ExecContext& ctx) {
    const SpeculativeStepOutputs outputs{
        .accepted_tokens_mask = mask_.view({kTokens}),
        .accepted_counts = accepted_.view({kRows}),
        .released = {.released_ids = released_.view({kRows * kMaxBlocks}),
                     .num_released = num_released_.view({1})},
        .next_positions = positions_.view({kRows, 1})};
    const KvBlockState state{offset_.view({kRows}), length_.view({kRows}), count_.view({kRows}),
                             last_id_.view({kRows}), ids_.view({kRows, kMaxBlocks})};
    const TensorView counts = counts_.view({2});
    speculative_step(ctx, outputs, state, input_.view({kTokens}), output_.view({kTokens}), {},
                     counts.narrow(0, 0, 1), counts.narrow(0, 1, 1),
                     Drafts::ragged(indptr_.view({kRows + 1}), kDrafts), kBlockSize);
  }

  void expect_reference() {
    const int64_t active = batch_.num_requests();
    const ref::Verified verified = ref::verify_speculative_tokens(
        batch_.input, batch_.output, batch_.drafts, batch_.num_prefill, true);
    const std::vector<uint8_t> mask = mask_.download();
    for (size_t t = 0; t < mask.size(); ++t) EXPECT_EQ(mask[t], verified.mask[t]) << t;
    const std::vector<int32_t> accepted = accepted_.download();
    const std::vector<int64_t> positions = positions_.download();
    Ints list;
    int64_t base = 0;
    for (int64_t i = 0; i < active; ++i) {
      const int64_t drafts = i < batch_.num_decode ? batch_.drafts[size_t(i)] : 0;
      const int64_t kept = verified.last_one_indices[size_t(i)] - base;
      base += 1 + drafts;
      if (i < batch_.num_decode) {
        EXPECT_EQ(accepted[size_t(i)], kept) << i;
      }
      const ref::Release release =
          ref::rewind_token_by_token(kv_[size_t(i)], drafts - kept, kBlockSize);
      list.insert(list.end(), release.ids.begin(), release.ids.end());
      EXPECT_EQ(positions[size_t(i)], kv_[size_t(i)].length) << i;
    }
    for (int64_t i = active; i < kRows; ++i) EXPECT_EQ(positions[size_t(i)], -1) << i;
    const auto num_released = static_cast<size_t>(num_released_.download()[0]);
    ASSERT_EQ(num_released, list.size());
    const std::vector<int32_t> released = released_.download(0, num_released);
    EXPECT_EQ(Ints(released.begin(), released.end()), list);
    EXPECT_TRUE(released_.untouched(num_released, released_.size() - num_released));
    const std::vector<int64_t> length = length_.download();
    const std::vector<int32_t> ids = ids_.download();
    for (int64_t i = 0; i < kRows; ++i) {  // those of padding rows as they were
      const ref::KvRequest& want = kv_[size_t(i)];
      EXPECT_EQ(length[size_t(i)], want.length) << i;
      const auto row = ids.begin() + i * kMaxBlocks;
      EXPECT_EQ(Ints(row, row + kMaxBlocks), want.ids) << i;
    }
  }

 private:
  template <class T>
  static void upload(DeviceBuffer<T>& to, const Ints& values) {
    to.upload(std::vector<T>(values.begin(), values.end()));
  }

  DraftedBatch batch_{};
  std::vector<ref::KvRequest> kv_;
  DeviceBuffer<int32_t> input_{kTokens}, indptr_{kRows + 1}, count_{kRows},
      ids_{kRows * kMaxBlocks};
  DeviceBuffer<int64_t> output_{kTokens}, counts_{2}, offset_{kRows}, length_{kRows},
      last_id_{kRows};
  DeviceBuffer<uint8_t> mask_{kTokens};
  DeviceBuffer<int32_t> accepted_{kRows}, released_{kRows * kMaxBlocks};
  DeviceBuffer<int64_t> num_released_{1}, positions_{kRows};
};

class SpeculativeStepReplay : public CudaTest {};

TEST_F(SpeculativeStepReplay, TakesOtherTokensCountsAndTables) {
  const DeviceStream stream;
  const CudaContext context(DeviceMirror().device(), stream.get(), 0);
  for (const bool with_exchange : {false, true}) {  // one block makes the list, or several do
    SCOPED_TRACE(with_exchange);
    ExecContext ctx = context.exec();
    if (!with_exchange) ctx.exchange = {};
    ReplayedStep step;
    step.load(1, 0);
    step.record(ctx);  // loads the kernel
    stream.wait();
    const RecordedGraph graph(stream.get(), [&] { step.record(ctx); });
    for (const auto& [decode, prefill] :
         {std::pair<int64_t, int64_t>{280, 20}, {0, 0}, {100, 7}, {0, 300}, {257, 0}}) {
      step.load(decode, prefill);
      graph.launch(stream.get());
      stream.wait();
      step.expect_reference();
    }
  }
}

/// N-gram drafts of rows that several blocks share, replayed with other tokens and lengths.
TEST_F(SpeculativeStepReplay, NgramDraftsTakeOtherTokensAndLengths) {
  constexpr int64_t kLength = 9000, kNgrams = 4;
  const DeviceStream stream;
  const CudaContext context(DeviceMirror().device(), stream.get(), 0);
  DeviceBuffer<int32_t> tokens(2 * kLength), lengths(2), drafts(2 * kNgrams), counts(2);
  const auto propose = [&] {
    propose_ngram_drafts(context.exec(), drafts.view({2, kNgrams}), counts.view({2}),
                         tokens.view({2, kLength}), lengths.view({2}), kNgrams);
  };
  lengths.upload(std::vector<int32_t>{0, 0});
  propose();  // loads the kernel
  stream.wait();
  const RecordedGraph graph(stream.get(), propose);
  for (int round = 0; round < 8; ++round) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < 2 * kLength; ++i) {
      values.push_back(static_cast<int32_t>(random_int(0, round < 4 ? 5000 : 2)));
    }
    const std::vector<int32_t> held{static_cast<int32_t>(random_int(0, kLength)),
                                    static_cast<int32_t>(kLength)};
    tokens.upload(values);
    lengths.upload(held);
    graph.launch(stream.get());
    stream.wait();
    const std::vector<int32_t> got = drafts.download(), num_drafts = counts.download();
    for (size_t i = 0; i < 2; ++i) {
      const auto row = values.begin() + int64_t(i) * kLength;
      Ints want = ref::propose_ngram_drafts(Ints(row, row + held[i]), kNgrams, {});
      EXPECT_EQ(num_drafts[i], int64_t(want.size())) << i;
      want.resize(kNgrams, kNoToken);
      const auto to = got.begin() + int64_t(i) * kNgrams;
      EXPECT_EQ(Ints(to, to + kNgrams), want) << i;
    }
  }
}

}  // namespace
}  // namespace heddle::testing
