#include "engine/drafts/draft_lengths.h"

#include <algorithm>

namespace heddle {
namespace {

/// Of the draft after `length` ones, whose last has this gain; 0: there is none.
double gain_after(const DraftOffer& row, int length, double gain) {
  if (length >= row.num_offered) return 0;
  if (length < row.num_certain) return 1;
  return row.accept_rate > 0 ? gain * std::min(row.accept_rate, 1.0) : 0;
}

/// Whether b comes before a.
bool is_after(const DraftLengths::Next& a, const DraftLengths::Next& b) {
  return a.gain != b.gain ? a.gain < b.gain : a.row > b.row;
}

}  // namespace

void DraftLengths::reserve(size_t num_rows, size_t max_num_drafts) {
  rows.reserve(num_rows);
  drafts.reserve(num_rows);
  heap.reserve(num_rows);
  taken.reserve(max_num_drafts);
}

/// The gains of a row never rise, so the next largest gain of all is the best draft to add to those
/// that have been, and of each number of drafts only these need a look. The ratio may rise again
/// after it fell, as where the costs have steps, so they all get one.
void choose_draft_lengths(DraftLengths& lengths, const StepCosts& costs) {
  const std::vector<DraftOffer>& rows = lengths.rows;
  std::vector<int>& drafts = lengths.drafts;
  std::vector<DraftLengths::Next>& heap = lengths.heap;
  drafts.assign(rows.size(), 0);
  lengths.taken.clear();
  heap.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const double gain = gain_after(rows[i], 0, 1);
    if (gain > 0) heap.push_back({gain, static_cast<int>(i)});
  }
  std::ranges::make_heap(heap, is_after);

  int64_t num_tokens = std::ssize(rows) + lengths.num_other_tokens;
  double expected = static_cast<double>(rows.size());
  double best = expected / costs.seconds(num_tokens);
  size_t num_best = 0;
  int longest = 0;
  while (!heap.empty() && std::ssize(lengths.taken) < lengths.max_drafts) {
    std::ranges::pop_heap(heap, is_after);
    const auto [gain, row] = heap.back();
    heap.pop_back();
    lengths.taken.push_back(row);
    const auto at = static_cast<size_t>(row);
    const double next = gain_after(rows[at], ++drafts[at], gain);
    if (next > 0) {
      heap.push_back({next, row});
      std::ranges::push_heap(heap, is_after);
    }
    expected += gain;
    longest = std::max(longest, drafts[at]);
    const double drafting = lengths.drafting.begin + longest * lengths.drafting.each;
    const double ratio = expected / (costs.seconds(++num_tokens) + drafting);
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

}  // namespace heddle
