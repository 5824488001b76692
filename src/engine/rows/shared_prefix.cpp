#include "engine/rows/shared_prefix.h"

#include <algorithm>

namespace heddle {
namespace {

/// Positions at the beginning of two sequences that have the same keys and values, bit for bit: the
/// tokens are equal, and so are the adapters, or they change nothing there.
int64_t num_common(const Sequence& a, const Sequence& b) {
  const auto length =
      static_cast<size_t>(std::min(a.request.prompt_tokens, b.request.prompt_tokens));
  const auto first = std::span(a.tokens).first(length), second = std::span(b.tokens).first(length);
  const int64_t same_tokens = std::ranges::mismatch(first, second).in1 - first.begin();
  constexpr auto kScale = &model::AdapterUse::scale;
  const bool same_scales = std::ranges::equal(a.adapters.uses, b.adapters.uses, {}, kScale, kScale);
  if (a.adapters.holds == b.adapters.holds && same_scales) return same_tokens;
  return std::min({same_tokens, a.adapters.keys_from, b.adapters.keys_from});
}

}  // namespace

void share_prefix(Sequence& sequence, std::span<Sequence* const> others, int64_t page_size) {
  RowCache& cache = sequence.cache;
  for (const Sequence* other : others) {
    const int64_t common =
        std::min(num_common(sequence, *other), sequence.request.prompt_tokens - 1);
    const int64_t num_shared = common / page_size * page_size;
    if (num_shared <= cache.num_shared) continue;
    cache.leader = other->id;
    cache.num_shared = num_shared;
  }
}

}  // namespace heddle
