#pragma once

#include <algorithm>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "heddle/ops/metadata.h"

#include "mirror.h"
#include "ops/metadata/test/index_tensor_cases.h"
#include "small_sizes.h"

// Bodies of the tests of the five conversions, for every device.

namespace heddle::testing {

using ref::Matrix;
using ref::Vector;

/// Where a test runs. On the CPU with one to three threads.
struct MetadataRun {
  ExecContext ctx;
  Mirror& mirror;

  [[nodiscard]] bool is_cpu() const { return ctx.device.type == DeviceType::kCpu; }
  /// The context with the pool where that has several threads.
  [[nodiscard]] ExecContext with(ThreadPool& pool) const {
    ExecContext result = ctx;
    if (is_cpu() && pool.num_threads() > 1) result.threads = &pool;
    return result;
  }
};

inline int64_t sum(const Vector& v) { return std::accumulate(v.begin(), v.end(), int64_t{0}); }
inline int64_t size_of(const Vector& v) { return static_cast<int64_t>(v.size()); }

inline std::optional<int64_t> random_fill() {
  return pick<std::optional<int64_t>>({std::nullopt, std::nullopt, -1, 0, 77});
}

/// Runs body(ctx, num_seqs, typical length) on random batches: small ones, some above a scan's
/// chunk, and skewed ones that several threads share.
template <class Body>
void for_random_batches(const MetadataRun& run, const Body& body) {
  for (int repeat = 0; repeat < small_or(10, 120); ++repeat) {
    ThreadPool pool(static_cast<int>(random_int(1, 3)));
    const ExecContext ctx = run.with(pool);
    const ScopedIndexTensors kind(index_tensors_of(repeat));
    const int64_t num_seqs = pick<int64_t>({0, 1, 2, random_int(3, 40), 256});
    if (repeat % 40 == 1) {
      body(ctx, random_int(1020, 3000), 30);
    } else if (repeat % 40 == 0) {
      body(ctx, random_int(1, 40), 3000);
    } else {
      body(ctx, num_seqs, random_int(1, 20));
    }
  }
}

/// A width or size: of what is needed, most often; else too small or too large.
inline int64_t around(int64_t needed) {
  return pick<int64_t>({needed, needed, needed + random_int(1, 40), random_int(0, needed)});
}
inline int64_t longest(const Vector& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

inline void expect_block_tables_to_ragged_equals_the_definition(const MetadataRun& run) {
  for_random_batches(run, [&](const ExecContext& ctx, int64_t num_seqs, int64_t typical) {
    Vector input = random_lengths(num_seqs, typical), cache = random_lengths(num_seqs, typical);
    Vector lengths;
    for (size_t i = 0; i < input.size(); ++i) lengths.push_back(input[i] + cache[i]);
    const Matrix tables =
        random_matrix(num_seqs, around(std::min<int64_t>(longest(lengths), 5000)));
    Vector want = random_vector(around(sum(lengths)), 0, 99);
    const auto fill = random_fill();
    IndexTensor ragged(want), block_tables(tables), input_lengths(input), cache_lengths(cache);
    block_tables_to_ragged(ctx, run.mirror(ragged.view()), run.mirror(block_tables.view()),
                           run.mirror(input_lengths.view()), run.mirror(cache_lengths.view()), fill,
                           pick<std::optional<int64_t>>({std::nullopt, sum(lengths)}));
    run.mirror.back();
    ref::block_tables_to_ragged(want, tables, input, cache, fill);
    ragged.expect(want);
  });
}

inline void expect_block_tables_to_padded_equals_the_definition(const MetadataRun& run) {
  for_random_batches(run, [&](const ExecContext& ctx, int64_t num_seqs, int64_t typical) {
    const Vector lengths = random_lengths(num_seqs, typical);
    const Vector cu = starts_of_lengths(lengths, random_int(0, 2));
    const Vector values = random_vector(around(cu.back()), 0, 1'000'000);
    Matrix want = random_matrix(num_seqs, around(std::min<int64_t>(longest(lengths), 5000)));
    const auto fill = random_fill();
    IndexTensor block_tables(want), ragged(values), cu_seqlens(cu);
    block_tables_to_padded(ctx, run.mirror(block_tables.view()), run.mirror(ragged.view()),
                           run.mirror(cu_seqlens.view()), fill);
    run.mirror.back();
    ref::block_tables_to_padded(want, values, cu, fill);
    block_tables.expect(want.values);
  });
}

inline void expect_copy_next_input_ids_equals_the_definition(const MetadataRun& run) {
  for_random_batches(run, [&](const ExecContext& ctx, int64_t num_seqs, int64_t typical) {
    const Vector cache = random_lengths(num_seqs, typical), input = random_vector(num_seqs, 0, 3);
    Vector prompt;
    for (size_t i = 0; i < cache.size(); ++i) {
      prompt.push_back(ref::length(cache[i] + input[i] + random_int(-2, 4)));
    }
    const Vector cu = starts_of_lengths(random_vector(num_seqs, 0, 4), random_int(0, 1));
    const Vector ids = random_vector(around(cu.back()), 0, 50'000);
    Matrix want = random_matrix(num_seqs, around(longest(cache) % 1000 + 8));
    IndexTensor all(want), next(ids), cu_accepted(cu), caches(cache), inputs(input),
        prompts(prompt);
    copy_next_input_ids_inplace(ctx, run.mirror(all.view()), run.mirror(next.view()),
                                run.mirror(cu_accepted.view()), run.mirror(caches.view()),
                                run.mirror(inputs.view()), run.mirror(prompts.view()));
    run.mirror.back();
    ref::copy_next_input_ids_inplace(want, ids, cu, cache, input, prompt);
    all.expect(want.values);
  });
}

inline void expect_prepare_position_slot_ids_equals_the_definition(const MetadataRun& run) {
  for_random_batches(run, [&](const ExecContext& ctx, int64_t num_seqs, int64_t typical) {
    const Vector cache = random_lengths(num_seqs, typical);
    const Vector cu = starts_of_lengths(random_lengths(num_seqs, typical), random_int(0, 2));
    Vector slot_starts = starts_of_lengths(random_lengths(num_seqs, 3 * typical));
    if (pick({false, true})) slot_starts.pop_back();  // the last one is never read
    Vector positions = random_vector(around(cu.back()), 0, 9);
    Vector slots = random_vector(around(cu.back()), 0, 9);
    IndexTensor position_ids(positions), slot_indices(slots), caches(cache), cu_seqlens(cu),
        cu_slots(slot_starts);
    const bool with_positions = random_int(0, 4) != 0, with_slots = random_int(0, 4) != 0;
    prepare_position_slot_ids(ctx, with_positions ? run.mirror(position_ids.view()) : TensorView(),
                              with_slots ? run.mirror(slot_indices.view()) : TensorView(),
                              run.mirror(caches.view()), run.mirror(cu_seqlens.view()),
                              with_slots ? run.mirror(cu_slots.view()) : TensorView());
    run.mirror.back();
    Vector want_positions = positions, want_slots = slots;
    ref::prepare_position_slot_ids(want_positions, want_slots, cache, cu, slot_starts);
    position_ids.expect(with_positions ? want_positions : positions);
    slot_indices.expect(with_slots ? want_slots : slots);
  });
}

inline void expect_slots_filtering_equals_the_definition(const MetadataRun& run) {
  for_random_batches(run, [&](const ExecContext& ctx, int64_t num_seqs, int64_t typical) {
    const Vector lengths = random_lengths(num_seqs, typical);
    const Vector cu = starts_of_lengths(lengths, random_int(0, 2));
    const Vector values = random_vector(random_int(0, 2 * cu.back() + 3), 0, 1'000'000);
    const Vector from = random_vector(num_seqs, -2, size_of(values) + 1);
    Vector want = random_vector(around(cu.back()), 0, 9);
    const auto fill = random_fill();
    IndexTensor filtered(want), slots(values), cu_slots(cu), slots_start(from);
    slots_filtering(ctx, run.mirror(filtered.view()), run.mirror(slots.view()),
                    run.mirror(cu_slots.view()), run.mirror(slots_start.view()), fill);
    run.mirror.back();
    ref::slots_filtering(want, values, cu, from, fill);
    filtered.expect(want);
  });
}

// The grids of the originals end at 65,535 requests; one of 32k next to many of one is what they
// balance worst.
inline void expect_conversions_take_any_number_of_requests_and_any_skew(const MetadataRun& run) {
  ThreadPool pool(3);
  const ExecContext ctx = run.with(pool);
  const int64_t long_row = small_or(2000, 32'768);
  for (const int64_t num_seqs : {256, small_or(700, 70'000)}) {
    const ScopedIndexTensors kind(index_tensors_of(static_cast<int>(random_int(0, 3))));
    Vector lengths(size_t(num_seqs), 1);
    lengths[size_t(random_int(0, num_seqs - 1))] = long_row;
    const Vector cu = starts_of_lengths(lengths), zeros(size_t(num_seqs), 0);
    const Vector values = random_vector(cu.back(), 0, 1'000'000);
    IndexTensor flat(values), cu_seqlens(cu), inputs(lengths), caches(zeros), starts(cu);
    Vector want_positions(size_t(cu.back()), 0), want_slots(want_positions);
    IndexTensor positions(want_positions), slots(want_slots), filtered(want_slots);
    prepare_position_slot_ids(ctx, run.mirror(positions.view()), run.mirror(slots.view()),
                              run.mirror(caches.view()), run.mirror(cu_seqlens.view()),
                              run.mirror(starts.view()));
    run.mirror.back();
    ref::prepare_position_slot_ids(want_positions, want_slots, zeros, cu, cu);
    positions.expect(want_positions);
    slots.expect(want_slots);
    slots_filtering(ctx, run.mirror(filtered.view()), run.mirror(flat.view()),
                    run.mirror(cu_seqlens.view()),
                    run.mirror(starts.view().narrow(0, 0, num_seqs)));
    run.mirror.back();
    filtered.expect(values);
    if (num_seqs > 1000) continue;  // a padded table of the others would take gigabytes
    IndexTensor tables(Matrix{num_seqs, long_row, Vector(size_t(num_seqs * long_row), 0)});
    IndexTensor back(Vector(size_t(cu.back()), 0));
    block_tables_to_padded(ctx, run.mirror(tables.view()), run.mirror(flat.view()),
                           run.mirror(cu_seqlens.view()));
    run.mirror.back();
    block_tables_to_ragged(ctx, run.mirror(back.view()), run.mirror(tables.view()),
                           run.mirror(inputs.view()), run.mirror(caches.view()));
    run.mirror.back();
    back.expect(values);
  }
}

// More elements than a GPU has threads.
inline void expect_conversions_of_long_tensors_equal_the_definition(const MetadataRun& run,
                                                                    IndexTensors are) {
  constexpr int64_t kSeqs = 256, kWidth = 1500;
  const ScopedIndexTensors kind(are);
  const Vector lengths = random_vector(kSeqs, 0, kWidth), zeros(size_t(kSeqs), 0);
  const Vector cu = starts_of_lengths(lengths), values = random_vector(cu.back(), 0, 1'000'000);
  const Matrix entries = random_matrix(kSeqs, kWidth);
  IndexTensor tables(entries), flat(values), cu_tensor(cu), inputs(lengths), none(zeros);
  IndexTensor ragged(Vector(size_t(cu.back()), 0)), padded(entries), ids(entries);
  IndexTensor positions(Vector(size_t(cu.back()), 0)), filtered(Vector(size_t(cu.back()), 0));
  const auto on_device = [&](IndexTensor& t) { return run.mirror(t.view()); };
  const TensorView starts = on_device(cu_tensor), from = on_device(flat);
  block_tables_to_ragged(run.ctx, on_device(ragged), on_device(tables), on_device(inputs),
                         on_device(none));
  block_tables_to_padded(run.ctx, on_device(padded), from, starts);
  copy_next_input_ids_inplace(run.ctx, on_device(ids), from, starts, on_device(none),
                              on_device(none), on_device(none));
  prepare_position_slot_ids(run.ctx, on_device(positions), {}, on_device(inputs), starts, {});
  slots_filtering(run.ctx, on_device(filtered), from, starts, starts.narrow(0, 0, kSeqs));
  run.mirror.back();
  Vector want(size_t(cu.back()), 0);
  Matrix rows = entries;
  ref::block_tables_to_ragged(want, entries, lengths, zeros, std::nullopt);
  ragged.expect(want);
  ref::block_tables_to_padded(rows, values, cu, std::nullopt);
  padded.expect(rows.values);
  ids.expect(rows.values);
  Vector no_slots;
  ref::prepare_position_slot_ids(want, no_slots, lengths, cu, zeros);
  positions.expect(want);
  filtered.expect(values);
}

// Positions, slots and ids that 32 bits do not hold.
inline void expect_conversions_keep_all_64_bits(const MetadataRun& run) {
  constexpr int64_t kSeqs = 40, kHigh = int64_t{1} << 40;
  const ScopedIndexTensors kind(IndexTensors::kContiguousI64);
  const Vector lengths = random_vector(kSeqs, 0, 9), cu = starts_of_lengths(lengths);
  const Vector cache = random_vector(kSeqs, kHigh, 2 * kHigh);
  const Vector slot = random_vector(kSeqs, -kHigh, kHigh);
  const Vector values = random_vector(cu.back(), -kHigh, kHigh), zeros(size_t(kSeqs), 0);
  const Matrix entries{kSeqs, 9, random_vector(kSeqs * 9, -kHigh, kHigh)};
  Vector want_positions(values.size()), want_slots(values.size()), want_ragged(values.size());
  Vector want_filtered(values.size());
  Matrix want_padded = entries, want_ids = entries;
  IndexTensor positions(want_positions), slots(want_slots), ragged(want_ragged), padded(entries),
      ids(entries), filtered(want_filtered);
  IndexTensor cu_tensor(cu), caches(cache), slot_starts(slot), flat(values), tables(entries),
      inputs(lengths), none(zeros), firsts(Vector(cu.begin(), cu.end() - 1));
  const auto on_device = [&](IndexTensor& t) { return run.mirror(t.view()); };
  const TensorView starts = on_device(cu_tensor), from = on_device(flat);
  prepare_position_slot_ids(run.ctx, on_device(positions), on_device(slots), on_device(caches),
                            starts, on_device(slot_starts));
  block_tables_to_ragged(run.ctx, on_device(ragged), on_device(tables), on_device(inputs),
                         on_device(none), kHigh);
  block_tables_to_padded(run.ctx, on_device(padded), from, starts);
  copy_next_input_ids_inplace(run.ctx, on_device(ids), from, starts, on_device(none),
                              on_device(none), on_device(none));
  slots_filtering(run.ctx, on_device(filtered), from, starts, on_device(firsts), -kHigh);
  run.mirror.back();
  ref::prepare_position_slot_ids(want_positions, want_slots, cache, cu, slot);
  positions.expect(want_positions);
  slots.expect(want_slots);
  ref::block_tables_to_ragged(want_ragged, entries, lengths, zeros, kHigh);
  ragged.expect(want_ragged);
  ref::block_tables_to_padded(want_padded, values, cu, std::nullopt);
  padded.expect(want_padded.values);
  ref::copy_next_input_ids_inplace(want_ids, values, cu, zeros, zeros, zeros);
  ids.expect(want_ids.values);
  filtered.expect(values);
}

/// Starts and lengths that no batch has.
inline Vector garbage(int64_t n) {
  Vector values = random_vector(n, -20, 60);
  for (int64_t& value : values) {
    const int64_t odd =
        pick<int64_t>({std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                       -2147483648, 2147483647});
    if (random_int(0, 5) == 0) value = odd;
  }
  return values;
}

// What is written is then up to chance, where it is written is not: guards and gaps stay whole, and
// nothing else is read (which the build with an address sanitizer sees).
inline void expect_conversions_stay_within_their_tensors_whatever_the_metadata_holds(
    const MetadataRun& run) {
  for (int repeat = 0; repeat < small_or(6, 100); ++repeat) {
    const ScopedIndexTensors kind(index_tensors_of(repeat));
    const int64_t num_seqs = random_int(0, 9);
    const auto fill = random_fill();
    IndexTensor flat(random_vector(random_int(0, 60), 0, 9)),
        other(random_vector(random_int(0, 60), 0, 9));
    IndexTensor source(random_vector(random_int(0, 60), 0, 9));
    IndexTensor tables(random_matrix(num_seqs, random_int(0, 30)));
    IndexTensor a(garbage(num_seqs)), b(garbage(num_seqs)), c(garbage(num_seqs)),
        cu(garbage(num_seqs + 1));
    block_tables_to_ragged(run.ctx, run.mirror(flat.view()), run.mirror(tables.view()),
                           run.mirror(a.view()), run.mirror(b.view()), fill);
    run.mirror.back();
    flat.expect(flat.values());
    block_tables_to_padded(run.ctx, run.mirror(tables.view()), run.mirror(source.view()),
                           run.mirror(cu.view()), fill);
    run.mirror.back();
    tables.expect(tables.values());
    copy_next_input_ids_inplace(run.ctx, run.mirror(tables.view()), run.mirror(source.view()),
                                run.mirror(cu.view()), run.mirror(a.view()), run.mirror(b.view()),
                                run.mirror(c.view()));
    run.mirror.back();
    tables.expect(tables.values());
    prepare_position_slot_ids(run.ctx, run.mirror(flat.view()), run.mirror(other.view()),
                              run.mirror(a.view()), run.mirror(cu.view()), run.mirror(b.view()));
    run.mirror.back();
    flat.expect(flat.values());
    other.expect(other.values());
    slots_filtering(run.ctx, run.mirror(flat.view()), run.mirror(source.view()),
                    run.mirror(cu.view()), run.mirror(a.view()), fill);
    run.mirror.back();
    flat.expect(flat.values());
  }
}

inline void expect_conversions_without_requests_touch_nothing_and_fill_on_demand(
    const MetadataRun& run) {
  IndexTensor ragged(Vector{5, 6}), tables(Matrix{0, 4, {}}), none(Vector{}), starts(Vector{0});
  block_tables_to_ragged(run.ctx, run.mirror(ragged.view()), run.mirror(tables.view()),
                         run.mirror(none.view()), run.mirror(none.view()));
  run.mirror.back();
  slots_filtering(run.ctx, run.mirror(ragged.view()), run.mirror(none.view()),
                  run.mirror(starts.view()), run.mirror(none.view()));
  run.mirror.back();
  prepare_position_slot_ids(run.ctx, run.mirror(ragged.view()), run.mirror(ragged.view()),
                            run.mirror(none.view()), run.mirror(starts.view()),
                            run.mirror(none.view()));
  run.mirror.back();
  ragged.expect({5, 6});
  block_tables_to_ragged(run.ctx, run.mirror(ragged.view()), run.mirror(tables.view()),
                         run.mirror(none.view()), run.mirror(none.view()), -1);
  run.mirror.back();
  ragged.expect({-1, -1});
  block_tables_to_padded(run.ctx, run.mirror(tables.view()), run.mirror(none.view()),
                         run.mirror(starts.view()), -1);
  run.mirror.back();
  copy_next_input_ids_inplace(run.ctx, run.mirror(tables.view()), run.mirror(none.view()),
                              run.mirror(starts.view()), run.mirror(none.view()),
                              run.mirror(none.view()), run.mirror(none.view()));
  run.mirror.back();
}

}  // namespace heddle::testing
