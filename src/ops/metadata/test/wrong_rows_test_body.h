#pragma once

#include <map>
#include <set>
#include <string>

#include "expect_error.h"
#include "ops/metadata/test/conversions_test_body.h"
#include "scoped_validation.h"

// Wrong starts and lengths, for each conversion: nothing is read or written outside, and rows
// without them have what they have. With HEDDLE_VALIDATE=1 the call throws before it writes.

namespace heddle::testing {

enum class Conversion { kToRagged, kToPadded, kCopyNext, kPositions, kFilter };
inline constexpr Conversion kConversions[] = {Conversion::kToRagged, Conversion::kToPadded,
                                              Conversion::kCopyNext, Conversion::kPositions,
                                              Conversion::kFilter};
inline const char* name_of(Conversion op) {
  constexpr const char* kNames[] = {"block_tables_to_ragged", "block_tables_to_padded",
                                    "copy_next_input_ids_inplace", "prepare_position_slot_ids",
                                    "slots_filtering"};
  return kNames[static_cast<int>(op)];
}

/// A number of rows with a few words that are wrong, and what becomes of each element by the
/// definition.
class WrongRows {
 public:
  WrongRows(Conversion op, const MetadataRun& run) : op_(op), run_(run) {
    num_seqs_ = pick<int64_t>({1, 2, 3, 5, random_int(6, 60)});
    lengths_ = random_vector(num_seqs_, 0, 5);
    starts_ = starts_of_lengths(lengths_);
    size_ = starts_.back() + random_int(0, 3);
    width_ = pick<int64_t>({5, 5, 7, 4});
    cache_ = random_vector(num_seqs_, 0, 3);
    input_ = random_vector(num_seqs_, 0, 2);
    prompt_ = random_vector(num_seqs_, 0, 4);
    from_ = random_vector(num_seqs_, 0, 4);
    if (op == Conversion::kToRagged) {
      input_ = lengths_;
      cache_.assign(size_t(num_seqs_), 0);
    }
    if (random_int(0, 1) == 0) fill_ = -9;
    for (int64_t i = random_int(0, 3); i > 0; --i) spoil();
  }

  void check() {
    const bool in_rows = op_ == Conversion::kToPadded || op_ == Conversion::kCopyNext;
    const int64_t num_places = in_rows ? num_seqs_ * width_ : size_;
    const Vector before = random_vector(num_places, 100, 199);
    const Vector source = random_vector(in_rows ? size_ : 30, 200, 299);
    const Matrix tables = random_matrix(num_seqs_, width_);
    find_places(source, tables);
    IndexTensor out =
        in_rows ? IndexTensor(Matrix{num_seqs_, width_, before}) : IndexTensor(before);
    IndexTensor slots(before), from(source), table(tables), cu(starts_), cache(cache_),
        input(input_), prompt(prompt_), first(from_);
    const auto m = [&](IndexTensor& t) { return run_.mirror(t.view()); };
    const auto call = [&] {
      const ExecContext& ctx = run_.ctx;
      switch (op_) {
        case Conversion::kToRagged:
          block_tables_to_ragged(ctx, m(out), m(table), m(input), m(cache), fill_);
          break;
        case Conversion::kToPadded:
          block_tables_to_padded(ctx, m(out), m(from), m(cu), fill_);
          break;
        case Conversion::kCopyNext:
          copy_next_input_ids_inplace(ctx, m(out), m(from), m(cu), m(cache), m(input), m(prompt));
          break;
        case Conversion::kPositions:
          prepare_position_slot_ids(ctx, m(out), m(slots), m(cache), m(cu), m(first));
          break;
        case Conversion::kFilter:
          slots_filtering(ctx, m(out), m(from), m(cu), m(first), fill_);
          break;
      }
      run_.mirror.back();
    };
    if (run_.is_cpu() && !wrong_.empty() && random_int(0, 1) == 0) {
      const ScopedValidation on;
      EXPECT_NE(message_of(call), "no error") << name_of(op_);
      return out.expect(before);
    }
    call();
    const bool is_exact = !run_.is_cpu();  // where starts descend, a CPU bisects them
    const bool fills = op_ != Conversion::kCopyNext && op_ != Conversion::kPositions && fill_;
    const Vector got = out.values();
    for (int64_t at = 0; at < num_places && (is_exact || !has_wrong_start_); ++at) {
      if (open_.contains(at)) continue;  // of a wrong row
      const auto place = places_.find(at);
      const int64_t want = place != places_.end() ? place->second.first
                           : fills                ? *fill_
                                                  : before[size_t(at)];
      ASSERT_EQ(got[size_t(at)], want) << name_of(op_) << ", place " << at;
    }
    out.expect(got);  // guards and gaps
    slots.expect(slots.values());
  }

 private:
  /// A start or another word becomes one that is out of range.
  void spoil() {
    using Narrow = std::numeric_limits<int32_t>;
    const bool is_int64 = ScopedIndexTensors::are() == IndexTensors::kContiguousI64;
    const int64_t far = is_int64 ? pick<int64_t>({std::numeric_limits<int64_t>::min(),
                                                  std::numeric_limits<int64_t>::max()})
                                 : pick<int64_t>({Narrow::min(), Narrow::max()});
    const int64_t wild = pick<int64_t>({-1, -2, size_ + 1, size_ + 999, far});
    const auto row = size_t(random_int(0, num_seqs_ - 1));
    const bool other = random_int(0, 2) == 0;
    if (op_ == Conversion::kToRagged) {
      input_[row] = pick<int64_t>({width_ + 1, size_ + 999, wild});
    } else if (op_ == Conversion::kFilter && other) {
      from_[row] = pick<int64_t>({28, 31, wild});
    } else if (op_ == Conversion::kCopyNext && other) {
      cache_[row] = pick<int64_t>({width_, width_ + 99, Narrow::max() / 2});
    } else {
      starts_[size_t(random_int(0, num_seqs_))] = wild;
      has_wrong_start_ = true;
    }
  }

  /// What each row that is right writes, and which places a wrong one may write to.
  void find_places(const Vector& source, const Matrix& tables) {
    int64_t sum = 0;
    std::set<int64_t> shared;  // elements that a wrong row claims, maybe as well as another one
    for (int64_t i = 0; i < num_seqs_; ++i) {
      const auto r = size_t(i);
      int64_t start = starts_[r], end = starts_[r + 1];
      if (op_ == Conversion::kToRagged) {
        start = sum;
        sum = std::min(sum + std::clamp<int64_t>(input_[r], 0, kFar), kFar);
        end = sum;
      }
      bool is_right = start >= 0 && start <= end && end <= size_;
      std::map<int64_t, std::pair<int64_t, int64_t>> places;  // what is written there, of which e
      for (int64_t e = std::max<int64_t>(start, 0); e < std::min(end, size_); ++e) {
        const int64_t j = start < -kFar ? kFar : e - start;
        switch (op_) {
          case Conversion::kToRagged:
            if (j < width_) places[e] = {tables.at(i, j), e};
            is_right = is_right && j < width_;
            break;
          case Conversion::kToPadded:
            if (j < width_) places[i * width_ + j] = {source[size_t(e)], e};
            is_right = is_right && j < width_;
            break;
          case Conversion::kCopyNext: {
            const int64_t position = cache_[r] + input_[r] + j;
            if (position < prompt_[r]) break;
            if (position < width_) places[i * width_ + position] = {source[size_t(e)], e};
            is_right = is_right && position < width_;
            break;
          }
          case Conversion::kPositions: places[e] = {cache_[r] + j, e}; break;
          case Conversion::kFilter: {
            const bool is_there =
                from_[r] >= 0 && from_[r] < kFar && has(source, from_[r] + std::min(j, kFar));
            if (is_there) places[e] = {source[size_t(from_[r] + j)], e};
            is_right = is_right && is_there;
            break;
          }
        }
      }
      if (is_right) {
        places_.insert(places.begin(), places.end());
        continue;
      }
      wrong_.insert(i);
      const bool in_rows = op_ == Conversion::kToPadded || op_ == Conversion::kCopyNext;
      for (int64_t e = std::max<int64_t>(start, 0); e < std::min(end, size_); ++e) {
        shared.insert(e);
        if (!in_rows) open_.insert(e);
      }
      for (int64_t j = 0; in_rows && j < width_; ++j) open_.insert(i * width_ + j);
    }
    for (const auto& [at, what] : places_) {
      if (shared.contains(what.second)) open_.insert(at);
    }
  }
  [[nodiscard]] static bool has(const Vector& v, int64_t i) { return ref::has(v, i); }

  static constexpr int64_t kFar = int64_t{1} << 40;
  Conversion op_;
  const MetadataRun& run_;
  int64_t num_seqs_ = 0, size_ = 0, width_ = 0;
  Vector lengths_, starts_, cache_, input_, prompt_, from_;
  std::optional<int64_t> fill_;
  bool has_wrong_start_ = false;
  std::map<int64_t, std::pair<int64_t, int64_t>> places_;  // of right rows, as in find_places
  std::set<int64_t> wrong_, open_;  // rows, and places that they may write to
};

inline void expect_conversions_skip_wrong_rows(const MetadataRun& run, int num_batches) {
  for (int i = 0; i < num_batches && !::testing::Test::HasFailure(); ++i) {
    const ScopedIndexTensors kind(i % 2 == 0 ? IndexTensors::kContiguousI64 : index_tensors_of(i));
    for (const Conversion op : kConversions) WrongRows(op, run).check();
  }
}

/// prepare_batch with wrong words: what a request without them gets per token. Pages and ids of a
/// wrong one count as missing.
inline void expect_prepare_batch_skips_wrong_requests(const MetadataRun& run, int num_batches) {
  for (int i = 0; i < num_batches && !::testing::Test::HasFailure(); ++i) {
    const ScopedIndexTensors kind(index_tensors_of(i));
    const int64_t num_seqs = pick<int64_t>({1, 2, 5, random_int(6, 40), i % 16 == 0 ? 300 : 3});
    constexpr int64_t kPages = 3, kSlots = 4;
    const int64_t num_tokens = 2 * num_seqs, num_pages = kPages * num_seqs;
    Vector page_starts = starts_of_lengths(Vector(size_t(num_seqs), kPages));
    Vector next_starts = starts_of_lengths(Vector(size_t(num_seqs), 2));
    Vector slots = random_vector(num_seqs, -1, kSlots - 1);
    IndexTensor cache(random_vector(num_seqs, 0, 8)), input(Vector(size_t(num_seqs), 2)),
        pages(random_vector(num_pages, 0, 99)), ids(random_vector(num_tokens, 0, 999));
    Vector kv_slots, input_ids, slot_ids, starts;
    const auto call = [&] {
      IndexTensor page_indptr(page_starts), next_indptr(next_starts), adapters(slots);
      const auto zeros = [](int64_t n) { return random_vector(n, 0, 0); };
      IndexTensor to_slots(zeros(num_tokens)), to_ids(zeros(num_tokens)),
          to_adapters(zeros(num_tokens)), to_indptr(zeros(num_seqs + 1)),
          per_slot(zeros(kSlots + 1));
      PrepareBatchInputs in;
      in.cache_lengths = run.mirror(cache.view());
      in.input_lengths = run.mirror(input.view());
      in.seq_pages = run.mirror(pages.view());
      in.seq_page_indptr = run.mirror(page_indptr.view());
      in.next_input_ids = run.mirror(ids.view());
      in.next_indptr = run.mirror(next_indptr.view());
      in.adapter_slots = run.mirror(adapters.view());
      in.page_size = 4;
      PrepareBatchOutputs out;
      out.kv_slots = run.mirror(to_slots.view());
      out.input_ids = run.mirror(to_ids.view());
      out.slot_ids = run.mirror(to_adapters.view());
      out.q_indptr = run.mirror(to_indptr.view());
      out.adapter_indptr = run.mirror(per_slot.view());
      prepare_batch(run.ctx, out, in);
      run.mirror.back();
      kv_slots = to_slots.values();
      input_ids = to_ids.values();
      slot_ids = to_adapters.values();
      starts = to_indptr.values();
      for (const IndexTensor* t : {&to_slots, &to_ids, &to_adapters, &to_indptr, &per_slot}) {
        t->expect(t->values());  // guards and gaps
      }
    };
    call();
    const Vector right_slots = kv_slots, right_ids = input_ids, right_starts = starts;
    for (int64_t k = random_int(1, 3); k > 0; --k) {
      const int64_t at = random_int(0, num_seqs), wild = pick<int64_t>({-1, -7, 1 << 20});
      switch (random_int(0, 2)) {
        case 0: page_starts[size_t(at)] = wild; break;
        case 1: next_starts[size_t(at)] = wild; break;
        default: slots[size_t(std::min(at, num_seqs - 1))] = pick<int64_t>({kSlots, 1 << 20});
      }
    }
    std::set<int64_t> wrong;
    for (int64_t r = 0; r < num_seqs; ++r) {
      const auto is_out = [&](const Vector& v, int64_t size) {
        return v[size_t(r)] < 0 || v[size_t(r + 1)] < v[size_t(r)] || v[size_t(r + 1)] > size;
      };
      if (is_out(page_starts, num_pages) || is_out(next_starts, num_tokens) ||
          slots[size_t(r)] >= kSlots) {
        wrong.insert(r);
      }
    }
    if (run.is_cpu() && !wrong.empty() && i % 2 == 0) {
      const ScopedValidation on;
      EXPECT_NE(message_of(call), "no error");
      continue;
    }
    call();
    EXPECT_EQ(starts, right_starts);
    for (int64_t t = 0; t < num_tokens; ++t) {
      const auto at = size_t(t);
      if (wrong.contains(t / 2)) continue;
      ASSERT_EQ(kv_slots[at], right_slots[at]) << "token " << t;
      ASSERT_EQ(input_ids[at], right_ids[at]) << "token " << t;
      ASSERT_EQ(slot_ids[at], slots[size_t(t / 2)]) << "token " << t;
    }
  }
}

}  // namespace heddle::testing
