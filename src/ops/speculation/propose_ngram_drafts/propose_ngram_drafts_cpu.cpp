#include <algorithm>

#include "ops/speculation/propose_ngram_drafts/propose_ngram_drafts_kernels.h"

namespace heddle::cpu::speculation {
namespace {

constexpr int64_t kTokensPerTask = 16384;  // some 10 us: less is not worth another thread

/// Where an n-gram of n tokens ends; n = 0: there is none.
struct Occurrence {
  int64_t n = 0, end = 0;
};

/// The occurrence that drafts are taken from. tokens [length], `step` elements apart.
template <class T>
Occurrence find_ngram(const T* tokens, int64_t step, int64_t length, const NgramParams& p) {
  const auto token = [&](int64_t i) { return tokens[i * step]; };
  const bool first = p.match == NgramMatch::kFirst;
  Occurrence best;
  if (length < 2) return best;
  const T last = token(length - 1);
  for (int64_t i = 0; i < length - 1; ++i) {
    const int64_t end = first ? i : length - 2 - i;
    if (token(end) != last) continue;
    const int64_t most = std::min(p.max_ngram, end + 1);
    int64_t n = 1;
    while (n < most && token(end - n) == token(length - 1 - n)) ++n;
    if (n >= p.min_ngram && n > best.n) best = {n, end};
    if (best.n == p.max_ngram) break;  // none is longer, and the others come after this one
  }
  return best;
}

void propose(const NgramParams& p, int64_t i, int64_t num_active) {
  const MutableIndexArray drafts = p.draft_tokens.row(i);
  const IndexArray tokens = p.tokens.row(i);
  int64_t count = 0, begin = 0;
  if (i < num_active) {
    const int64_t length = std::clamp<int64_t>(p.lengths[i], 0, p.max_tokens);
    const Occurrence found = tokens.is_int64()
                                 ? find_ngram(reinterpret_cast<const int64_t*>(tokens.data()),
                                              tokens.step_bytes() / 8, length, p)
                                 : find_ngram(reinterpret_cast<const int32_t*>(tokens.data()),
                                              tokens.step_bytes() / 4, length, p);
    if (found.n > 0) {
      begin = found.end + 1;
      count = p.num_drafts_after(found.end, length);
    }
  }
  for (int64_t j = 0; j < p.max_drafts; ++j)
    drafts.set(j, j < count ? tokens[begin + j] : kNoToken);
  p.num_drafts.set(i, count);
}

}  // namespace

void propose_ngram_drafts(const ExecContext& ctx, const NgramParams& params) {
  const int64_t num_active = params.num_active.read();
  const int64_t grain =
      std::max<int64_t>(1, kTokensPerTask / std::max<int64_t>(1, params.max_tokens));
  parallel_for(ctx, params.num_rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) propose(params, i, num_active);
  });
}

}  // namespace heddle::cpu::speculation
