#include <limits>

#include <gtest/gtest.h>

#include "heddle/config.h"

#include "expect_error.h"
#include "ops/metadata/test/prepare_batch_cases.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using ref::BatchCall;
using ref::Vector;
using testing::BatchTensors;
using testing::expect_invalid;
using testing::expect_unsupported;
using testing::IndexTensor;
using testing::random_int;

BatchCall two_requests() {
  BatchCall c;
  c.cache_lengths = {3, 5};
  c.input_lengths = {1, 2};
  c.page_size = 4;
  c.seq_pages = {{1}, {2, 3}};
  c.adapter_slots = {0, 1};
  c.num_tokens = 4;
  c.max_pages = 3;
  c.table_width = 2;
  c.num_segments = 2;
  c.num_slots = 2;
  return c;
}

const std::vector<std::string> kOutputs = {"q_indptr", "kv_slots",       "pages",    "page_table",
                                           "slot_ids", "adapter_indptr", "seg_slots"};

/// Runs the call after `change(batch)`.
template <class Change>
void run(const Change& change) {
  BatchTensors batch(two_requests(), kOutputs);
  change(batch);
  batch.run({});
}

TEST(PrepareBatchErrors, NameTensorAxisAndBothValues) {
  IndexTensor three(Vector{0, 0, 0}), five(Vector{0, 0, 0, 0, 0}), none(Vector{});
  std::vector<float> floats(4);
  run([](BatchTensors&) {});
  expect_invalid({"input_lengths.size(0) is 3, expected num_seqs = 2"},
                 [&] { run([&](BatchTensors& b) { b.in.input_lengths = three.view(); }); });
  expect_invalid({"q_indptr.size(0) is 5, expected num_seqs + 1 = 3"},
                 [&] { run([&](BatchTensors& b) { b.out.q_indptr = five.view(); }); });
  expect_invalid({"slot_ids.size(0) is 5, expected num_tokens = 4"},
                 [&] { run([&](BatchTensors& b) { b.out.slot_ids = five.view(); }); });
  expect_invalid({"overflow.size(0) is 3, expected 1 = 1"},
                 [&] { run([&](BatchTensors& b) { b.out.overflow = three.view(); }); });
  expect_invalid({"adapter_indptr.size(0) is 0, expected num_slots + 1"},
                 [&] { run([&](BatchTensors& b) { b.out.adapter_indptr = none.view(); }); });
  expect_invalid({"cache_lengths has rank 0, expected 1"},
                 [&] { run([&](BatchTensors& b) { b.in.cache_lengths = {}; }); });
  expect_unsupported({"positions is f32, supported: i32, i64"}, [&] {
    run([&](BatchTensors& b) { b.out.positions = host_view(floats.data(), {4}); });
  });
  ExecContext cuda;
  cuda.device = {DeviceType::kCuda, 0};
  const auto prepare = [&] { BatchTensors(two_requests(), kOutputs).run(cuda); };
  if (kWithCuda) {
    expect_invalid({"cache_lengths is on cpu, the context runs on cuda:0"}, prepare);
  } else {
    expect_unsupported({"prepare_batch: built without CUDA"}, prepare);
  }
}

TEST(PrepareBatchErrors, SayWhatAnOutputNeeds) {
  IndexTensor four(Vector{0, 0, 0, 0});
  expect_invalid({"kv_slots is asked for with page_size 0, expected at least 1"}, [&] {
    run([&](BatchTensors& b) {
      b.in.page_size = 0;
      b.out.pages = b.out.page_table = {};
    });
  });
  expect_invalid({"pages is asked for, but neither seq_page_table nor seq_pages is given"}, [&] {
    run([&](BatchTensors& b) { b.in.seq_pages = b.in.seq_page_indptr = {}; });
  });
  expect_invalid({"seq_pages and seq_page_indptr: expected both or neither"},
                 [&] { run([&](BatchTensors& b) { b.in.seq_page_indptr = {}; }); });
  expect_invalid({"both seq_pages and seq_page_table are given"},
                 [&] { run([&](BatchTensors& b) { b.in.seq_page_table = b.out.page_table; }); });
  expect_invalid({"next_input_ids and next_indptr: expected both or neither"},
                 [&] { run([&](BatchTensors& b) { b.in.next_input_ids = four.view(); }); });
  expect_invalid({"input_ids is asked for, but neither all_input_ids nor next_input_ids is given"},
                 [&] { run([&](BatchTensors& b) { b.out.input_ids = four.view(); }); });
  expect_invalid({"adapter_rows is asked for without adapter_indptr"}, [&] {
    run([&](BatchTensors& b) {
      b.out.adapter_rows = four.view();
      b.out.adapter_indptr = {};
    });
  });
  expect_invalid({"tokens_per_seq is -1, expected at least 0"},
                 [&] { run([&](BatchTensors& b) { b.in.tokens_per_seq = -1; }); });
}

TEST(PrepareBatchValidation, NamesRequestAndValue) {
  const testing::ScopedValidation validation;
  const auto validated = [](const auto& change) {
    BatchCall c = two_requests();
    change(c);
    BatchTensors(c, kOutputs).run({});
  };
  validated([](BatchCall&) {});
  validated([](BatchCall& c) {  // of padding nothing is looked at
    c.num_active = 1;
    c.cache_lengths[1] = -7;
    c.seq_pages = {{1}, {}};
  });
  expect_invalid({"cache_lengths[1] is -7, expected at least 0"},
                 [&] { validated([](BatchCall& c) { c.cache_lengths[1] = -7; }); });
  expect_invalid({"adapter_slots[0] is 2, expected below num_slots = 2"}, [&] {
    validated([](BatchCall& c) { c.adapter_slots = {2, 1}; });
  });
  expect_invalid({"num_active[0] is 3, expected 0 to num_seqs = 2"},
                 [&] { validated([](BatchCall& c) { c.num_active = 3; }); });
  expect_invalid({"request 1 brings 2 tokens, expected at most the 1 that are left of "
                  "num_tokens = 2"},
                 [&] { validated([](BatchCall& c) { c.num_tokens = 2; }); });
  expect_invalid({"request 1 needs 2 pages, expected at most the 1 that it is given"}, [&] {
    validated([](BatchCall& c) { c.seq_pages = {{1}, {2}}; });
  });
  expect_invalid({"request 1 needs 2 pages, expected at most the 1 that its outputs have left"},
                 [&] { validated([](BatchCall& c) { c.max_pages = 2; }); });
  expect_invalid({"page 1 of request 1 is -3, expected at least 0"}, [&] {
    validated([](BatchCall& c) { c.seq_pages = {{1}, {2, -3}}; });
  });
  expect_invalid(
      {"adapter_slots[1] is 1, which begins segment 2, expected at most num_segments = 1"},
      [&] { validated([](BatchCall& c) { c.num_segments = 1; }); });
  expect_invalid({"next_indptr[2] is 0, expected at least next_indptr[1] = 1"}, [&] {
    validated([](BatchCall& c) {
      c.next_indptr = {0, 1, 0};
      c.next_input_ids = {5};
    });
  });
  IndexTensor starts(Vector{0, 2, 1}), lengths(Vector{0, -2}), table(ref::Matrix{2, 1, {7, -1}});
  expect_invalid({"seq_page_indptr[2] is 1, expected at least seq_page_indptr[1] = 2"},
                 [&] { run([&](BatchTensors& b) { b.in.seq_page_indptr = starts.view(); }); });
  expect_invalid({"accepted_lengths[1] is -2, expected at least 0"},
                 [&] { run([&](BatchTensors& b) { b.in.accepted_lengths = lengths.view(); }); });
  expect_invalid({"input_lengths[1] is -2, expected at least 0"},
                 [&] { run([&](BatchTensors& b) { b.in.input_lengths = lengths.view(); }); });
  expect_invalid({"prompt_lengths[1] is -2, expected at least 0"},
                 [&] { run([&](BatchTensors& b) { b.in.prompt_lengths = lengths.view(); }); });
  expect_invalid({"page 0 of request 1 is -1, expected at least 0"}, [&] {
    run([&](BatchTensors& b) {
      b.in.seq_pages = b.in.seq_page_indptr = {};
      b.in.seq_page_table = table.view();
      b.in.page_size = 8;
    });
  });
}

Vector garbage(int64_t n) {
  Vector values = testing::random_vector(n, -20, 60);
  for (int64_t& value : values) {
    const int64_t odd = testing::pick<int64_t>(
        {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), 2147483647});
    if (random_int(0, 5) == 0) value = odd;
  }
  return values;
}

// What attention then reads by the outputs lies within the page table, whatever the inputs hold.
TEST(PrepareBatch, StaysWithinItsTensorsWhateverTheMetadataHolds) {
  for (int repeat = 0; repeat < 400; ++repeat) {
    const int64_t n = random_int(0, 9), num_tokens = random_int(0, 60),
                  max_pages = random_int(0, 30);
    IndexTensor cache(garbage(n)), accepted(garbage(n)), input(garbage(n)), active(garbage(1));
    IndexTensor given(garbage(random_int(0, 30))), given_indptr(garbage(n + 1)), slots(garbage(n));
    IndexTensor ids(garbage(random_int(0, 30))), ids_indptr(garbage(n + 1)), prompt(garbage(n));
    PrepareBatchInputs in;
    in.cache_lengths = cache.view();
    if (random_int(0, 1) == 0) in.accepted_lengths = accepted.view();
    in.input_lengths = input.view();
    if (random_int(0, 1) == 0) in.num_active = active.view();
    in.seq_pages = given.view();
    in.seq_page_indptr = given_indptr.view();
    in.adapter_slots = slots.view();
    in.next_input_ids = ids.view();
    in.next_indptr = ids_indptr.view();
    in.prompt_lengths = prompt.view();
    in.page_size = testing::pick<int64_t>({1, 16, int64_t{1} << 60});
    std::vector<std::unique_ptr<IndexTensor>> outputs;
    const auto output = [&](const auto& values) {
      outputs.push_back(std::make_unique<IndexTensor>(values));
      return outputs.back()->view();
    };
    PrepareBatchOutputs out;
    out.q_indptr = output(Vector(size_t(n + 1)));
    out.page_indptr = output(Vector(size_t(n + 1)));
    out.last_page_len = output(Vector(size_t(n)));
    out.pages = output(Vector(size_t(max_pages)));
    out.page_table = output(ref::Matrix{n, 5, Vector(size_t(n * 5))});
    if (random_int(0, 1) == 0) {
      out.positions = output(Vector(size_t(num_tokens)));
      out.kv_slots = output(Vector(size_t(num_tokens)));
      out.input_ids = output(Vector(size_t(num_tokens)));
      out.adapter_rows = output(Vector(size_t(num_tokens)));
      out.adapter_indptr = output(Vector(5));
    }
    out.seg_starts = output(Vector(3));
    out.all_input_ids = output(ref::Matrix{n, 8, Vector(size_t(n * 8))});
    prepare_batch({}, out, in);
    for (const auto& tensor : outputs) tensor->expect(tensor->values());
    const Vector page_indptr = outputs[1]->values();
    for (int64_t i = 0; i < n; ++i) EXPECT_LE(page_indptr[size_t(i)], page_indptr[size_t(i) + 1]);
    EXPECT_LE(page_indptr.back(), max_pages);
  }
}

}  // namespace
}  // namespace heddle
