#include "engine/drafts/draft_lengths.h"

#include <algorithm>

namespace heddle {
namespace {

/// Of the draft after `length` ones, whose last has this gain; 0: there is none. most_made: drafts
/// of a row that are still to be made.
double gain_after(const DraftOffer& row, int most_made, int length, double gain) {
  if (length >= (row.is_made ? row.num_offered : std::min(row.num_offered, most_made))) return 0;
  if (length < row.num_certain) return 1;
  return row.accept_rate > 0 ? gain * std::min(row.accept_rate, 1.0) : 0;
}

/// Whether b comes before a.
bool is_after(const DraftLengths::Next& a, const DraftLengths::Next& b) {
  return a.gain != b.gain ? a.gain < b.gain : a.row > b.row;
}

/// As choose_draft_lengths, where at most most_made drafts of a row are made, which takes so many
/// seconds whatever is chosen.
/// The gains of a row never rise, so the next largest gain of all is the best draft to add to those
/// that have been, and of each number of drafts only these need a look. The ratio may rise again
/// after it fell, as where the costs have steps, so they all get one.
void choose(DraftLengths& lengths, const StepCosts& costs, int most_made, double seconds) {
  const std::vector<DraftOffer>& rows = lengths.rows;
  std::vector<int>& drafts = lengths.drafts;
  std::vector<DraftLengths::Next>& heap = lengths.heap;
  drafts.assign(rows.size(), 0);
  lengths.taken.clear();
  heap.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const double gain = gain_after(rows[i], most_made, 0, 1);
    if (gain > 0) heap.push_back({gain, static_cast<int>(i)});
  }
  std::ranges::make_heap(heap, is_after);

  int64_t num_tokens = std::ssize(rows) + lengths.num_other_tokens;
  double expected = static_cast<double>(rows.size());
  double best = expected / (costs.seconds(num_tokens) + seconds);
  size_t num_best = 0;
  while (!heap.empty() && std::ssize(lengths.taken) < lengths.max_drafts) {
    std::ranges::pop_heap(heap, is_after);
    const auto [gain, row] = heap.back();
    heap.pop_back();
    lengths.taken.push_back(row);
    const auto at = static_cast<size_t>(row);
    const double next = gain_after(rows[at], most_made, ++drafts[at], gain);
    if (next > 0) {
      heap.push_back({next, row});
      std::ranges::push_heap(heap, is_after);
    }
    expected += gain;
    const double ratio = expected / (costs.seconds(++num_tokens) + seconds);
    if (ratio > best) {
      best = ratio;
      num_best = lengths.taken.size();
    }
  }

  for (; lengths.taken.size() > num_best; lengths.taken.pop_back()) {
    --drafts[static_cast<size_t>(lengths.taken.back())];
  }
  lengths.tokens_per_second = best;
}

}  // namespace

void DraftLengths::reserve(size_t num_rows, size_t max_num_drafts) {
  rows.reserve(num_rows);
  drafts.reserve(num_rows);
  heap.reserve(num_rows);
  taken.reserve(max_num_drafts);
}

/// One choice for each number of drafts that may be made of a row: which one is best depends on
/// what making them costs, and the best of all is among these.
void choose_draft_lengths(DraftLengths& lengths, const StepCosts& costs) {
  const auto& [begin, each] = lengths.drafting;
  int most = 0;
  for (const DraftOffer& row : lengths.rows) {
    if (!row.is_made) most = std::max(most, row.num_offered);
  }
  if (begin + each <= 0) return choose(lengths, costs, most, 0);
  const auto choose_up_to = [&](int count) {
    choose(lengths, costs, count, count == 0 ? 0 : begin + count * each);
    return lengths.tokens_per_second;
  };
  int best = 0;
  double best_rate = choose_up_to(0);
  for (int count = 1; count <= most; ++count) {
    const double rate = choose_up_to(count);
    if (rate <= best_rate) continue;
    best = count;
    best_rate = rate;
  }
  if (best < most) (void)choose_up_to(best);
}

}  // namespace heddle
