// The metadata ops on a GPU: the bodies of the CPU's tests, captured graphs, and HEDDLE_VALIDATE=1.
#include <numeric>
#include <vector>

#include "cuda/check.h"
#include "cuda_test.h"

#include "device_buffer.h"
#include "device_mirror.h"
#include "expect_error.h"
#include "ops/metadata/test/prepare_batch_test_body.h"
#include "scoped_validation.h"

namespace heddle::testing {
namespace {

/// Tensors between guards, then at the ends of their allocations.
class MetadataCuda : public CudaTestWith<DeviceMirror::Guards> {
 protected:
  [[nodiscard]] MetadataRun run() { return {cuda_context(), mirror_}; }

 private:
  DeviceMirror mirror_{GetParam()};
};

TEST_P(MetadataCuda, BlockTablesToRagged) {
  expect_block_tables_to_ragged_equals_the_definition(run());
}
TEST_P(MetadataCuda, BlockTablesToPadded) {
  expect_block_tables_to_padded_equals_the_definition(run());
}
TEST_P(MetadataCuda, CopyNextInputIds) { expect_copy_next_input_ids_equals_the_definition(run()); }
TEST_P(MetadataCuda, PreparePositionSlotIds) {
  expect_prepare_position_slot_ids_equals_the_definition(run());
}
TEST_P(MetadataCuda, SlotsFiltering) { expect_slots_filtering_equals_the_definition(run()); }
TEST_P(MetadataCuda, TakesAnyNumberOfRequestsAndAnySkew) {
  expect_conversions_take_any_number_of_requests_and_any_skew(run());
}
TEST_P(MetadataCuda, LongTensors) {
  expect_conversions_of_long_tensors_equal_the_definition(run(), IndexTensors::kContiguousI32);
  expect_conversions_of_long_tensors_equal_the_definition(run(), IndexTensors::kContiguous);
}
TEST_P(MetadataCuda, KeepsAll64Bits) { expect_conversions_keep_all_64_bits(run()); }
TEST_P(MetadataCuda, StaysWithinTheTensorsWhateverTheyHold) {
  expect_conversions_stay_within_their_tensors_whatever_the_metadata_holds(run());
}
TEST_P(MetadataCuda, WithoutRequestsTouchesNothingAndFillsOnDemand) {
  expect_conversions_without_requests_touch_nothing_and_fill_on_demand(run());
}
TEST_P(MetadataCuda, PrepareBatchEqualsTheDefinition) {
  expect_prepare_batch_equals_the_definition(run());
}
TEST_P(MetadataCuda, PrepareBatchWritesOneStep) { expect_prepare_batch_writes_one_step(run()); }
TEST_P(MetadataCuda, PrepareBatchCutsWhatDoesNotFitAndSaysSo) {
  expect_prepare_batch_cuts_what_does_not_fit_and_says_so(run());
}
TEST_P(MetadataCuda, PrepareBatchTakesAnyNumberOfRequestsAndAnySkew) {
  expect_prepare_batch_takes_any_number_of_requests_and_any_skew(run());
}

INSTANTIATE_TEST_SUITE_P(Guards, MetadataCuda,
                         ::testing::Values(DeviceMirror::Guards::kBoth,
                                           DeviceMirror::Guards::kFlush),
                         [](const auto& guards) {
                           return guards.param == DeviceMirror::Guards::kBoth ? "Both" : "Flush";
                         });

/// What `record` launches, captured on a stream of its own and replayed.
class Replayed {
 public:
  template <class Record>
  explicit Replayed(const Record& record) {
    HEDDLE_CUDA_CHECK(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
    record(stream_.get());
    cudaGraph_t graph = nullptr;
    HEDDLE_CUDA_CHECK(cudaStreamEndCapture(stream_.get(), &graph));
    HEDDLE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_launches_));
    const cudaError_t error = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    HEDDLE_CUDA_CHECK(error);
  }
  ~Replayed() { cudaGraphExecDestroy(graph_); }
  Replayed(const Replayed&) = delete;
  Replayed& operator=(const Replayed&) = delete;

  void launch() const {
    HEDDLE_CUDA_CHECK(cudaGraphLaunch(graph_, stream_.get()));
    stream_.wait();
  }
  [[nodiscard]] size_t num_launches() const { return num_launches_; }

 private:
  DeviceStream stream_;
  cudaGraphExec_t graph_ = nullptr;
  size_t num_launches_ = 0;
};

class MetadataReplay : public CudaTest {};

TEST_F(MetadataReplay, ConversionsFollowLengthsThatChangedInPlace) {
  constexpr int64_t kSeqs = 300, kWidth = 40, kSize = kSeqs * kWidth;
  const Matrix tables = random_matrix(kSeqs, kWidth);
  std::vector<int32_t> entries(tables.values.begin(), tables.values.end());
  const DeviceBuffer<int32_t> there(entries);
  DeviceBuffer<int64_t> input(kSeqs), cu(kSeqs + 1);
  const DeviceBuffer<int32_t> zeros(std::vector<int32_t>(kSeqs, 0));
  DeviceBuffer<int32_t> ragged(kSize), back(kSize);
  const auto convert = [&](cudaStream_t stream) {
    const ExecContext ctx = cuda_context(stream);
    block_tables_to_ragged(ctx, ragged.view({kSize}), there.view({kSeqs, kWidth}),
                           input.view({kSeqs}), zeros.view({kSeqs}));
    block_tables_to_padded(ctx, back.view({kSeqs, kWidth}), ragged.view({kSize}),
                           cu.view({kSeqs + 1}));
  };
  convert(nullptr);  // loads the kernels
  const Replayed graph(convert);
  EXPECT_EQ(graph.num_launches(), 2u);
  for (int round = 0; round < 5; ++round) {
    const Vector lengths = random_vector(kSeqs, 0, kWidth);
    input.upload(lengths);
    cu.upload(starts_of_lengths(lengths));
    ragged.poison();
    back.poison();
    graph.launch();
    Vector want(size_t(sum(lengths)), 0);
    ref::block_tables_to_ragged(want, tables, lengths, Vector(kSeqs, 0), std::nullopt);
    const auto got = ragged.download(0, want.size());
    EXPECT_EQ(Vector(got.begin(), got.end()), want) << "round " << round;
    EXPECT_TRUE(ragged.untouched(want.size(), size_t(kSize) - want.size()));
    const auto rows = back.download();
    for (int64_t i = 0; i < kSeqs; ++i) {
      const auto at = size_t(i * kWidth), used = size_t(lengths[size_t(i)]);
      ASSERT_TRUE(std::equal(rows.begin() + int64_t(at), rows.begin() + int64_t(at + used),
                             entries.begin() + int64_t(at)));
      ASSERT_TRUE(back.untouched(at + used, size_t(kWidth) - used));
    }
  }
}

TEST_F(MetadataReplay, PrepareBatchIsOneLaunchAndFollowsItsTensors) {
  constexpr int64_t kSeqs = 70, kWidth = 9, kTokens = 4 * kSeqs, kPages = kSeqs * kWidth;
  DeviceBuffer<int32_t> cache(kSeqs), accepted(kSeqs), input(kSeqs), active(1), slots(kSeqs);
  DeviceBuffer<int64_t> table(kSeqs * kWidth);
  const DeviceBuffer<int32_t> q_indptr(kSeqs + 1), pages(kPages), positions(kTokens),
      kv_slots(kTokens), rows(kTokens), indptr(5);
  PrepareBatchInputs in;
  in.cache_lengths = cache.view({kSeqs});
  in.accepted_lengths = accepted.view({kSeqs});
  in.input_lengths = input.view({kSeqs});
  in.num_active = active.view({1});
  in.seq_page_table = table.view({kSeqs, kWidth});
  in.adapter_slots = slots.view({kSeqs});
  in.page_size = 16;
  PrepareBatchOutputs out;
  out.q_indptr = q_indptr.view({kSeqs + 1});
  out.pages = pages.view({kPages});
  out.positions = positions.view({kTokens});
  out.kv_slots = kv_slots.view({kTokens});
  out.adapter_rows = rows.view({kTokens});
  out.adapter_indptr = indptr.view({5});
  const auto prepare = [&](cudaStream_t stream) { prepare_batch(cuda_context(stream), out, in); };
  prepare(nullptr);  // loads the kernel
  const Replayed graph(prepare);
  EXPECT_EQ(graph.num_launches(), 1u);
  const auto upload = [](DeviceBuffer<int32_t>& to, const Vector& values) {
    to.upload(std::vector<int32_t>(values.begin(), values.end()));
  };
  const auto expect = [](const DeviceBuffer<int32_t>& got, const Vector& want) {
    const auto values = got.download();
    EXPECT_EQ(Vector(values.begin(), values.end()), want);
  };
  for (int round = 0; round < 5; ++round) {
    BatchCall c;
    c.cache_lengths = random_vector(kSeqs, 0, 120);
    c.accepted_lengths = random_vector(kSeqs, 0, 4);
    c.input_lengths = random_vector(kSeqs, 0, 4);
    c.num_active = random_int(0, kSeqs);
    c.adapter_slots = random_vector(kSeqs, -1, 4);
    c.page_size = 16;
    c.num_tokens = kTokens;
    c.max_pages = kPages;
    c.num_slots = 4;
    c.seq_pages.emplace();
    Vector all_pages;
    for (int64_t i = 0; i < kSeqs; ++i) {
      c.seq_pages->push_back(random_vector(kWidth, 0, 999));
      all_pages.insert(all_pages.end(), c.seq_pages->back().begin(), c.seq_pages->back().end());
    }
    upload(cache, c.cache_lengths);
    upload(accepted, *c.accepted_lengths);
    upload(input, *c.input_lengths);
    upload(active, {*c.num_active});
    upload(slots, *c.adapter_slots);
    table.upload(all_pages);
    graph.launch();
    const BatchResult want = ref::prepare_batch(c);
    expect(q_indptr, want.at("q_indptr"));
    expect(pages, want.at("pages"));
    expect(positions, want.at("positions"));
    expect(kv_slots, want.at("kv_slots"));
    expect(rows, want.at("adapter_rows"));
    expect(indptr, want.at("adapter_indptr"));
  }
}

class MetadataValidateCuda : public CudaTest {};

TEST_F(MetadataValidateCuda, NamesRowAndValue) {
  const DeviceBuffer<int32_t> flat(std::vector<int32_t>{1, 2, 3, 4}), tables(6),
      wrong(std::vector<int32_t>{0, 3, 1}), lengths(std::vector<int32_t>{1, -1}),
      ones(std::vector<int32_t>{1, 1});
  PrepareBatchOutputs out;
  out.q_indptr = tables.view({6}).narrow(0, 0, 3);
  PrepareBatchInputs in;
  in.cache_lengths = lengths.view({2});
  const ScopedValidation on;
  const ExecContext ctx = cuda_context();
  expect_invalid({"cu_seqlens[2] is 1, expected at least cu_seqlens[1] = 3"}, [&] {
    block_tables_to_padded(ctx, tables.view({2, 3}), flat.view({4}), wrong.view({3}));
  });
  EXPECT_TRUE(tables.untouched(0, 6));
  expect_invalid({"input_lengths and cache_lengths sum to 4, expected total = 5"}, [&] {
    block_tables_to_ragged(ctx, flat.view({4}), tables.view({2, 3}), ones.view({2}), ones.view({2}),
                           std::nullopt, 5);
  });
  expect_invalid({"cache_lengths[1] is -1, expected at least 0"},
                 [&] { prepare_batch(ctx, out, in); });
  EXPECT_TRUE(tables.untouched(0, 6));
}

TEST_F(MetadataValidateCuda, IsLeftOutDuringACapture) {
  const DeviceBuffer<int32_t> flat(4), tables(6), wrong(std::vector<int32_t>{0, 3, 1});
  const auto convert = [&](cudaStream_t stream) {
    block_tables_to_padded(cuda_context(stream), tables.view({2, 3}), flat.view({4}),
                           wrong.view({3}));
  };
  convert(nullptr);  // loads the kernel
  const ScopedValidation on;
  EXPECT_NO_THROW(Replayed{convert});
}

}  // namespace
}  // namespace heddle::testing
