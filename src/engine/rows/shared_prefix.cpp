#include "engine/rows/shared_prefix.h"

#include <algorithm>
#include <limits>

namespace heddle {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// Where the adapters begin to change keys and values.
int64_t acts_from(const Sequence& row) {
  if (row.adapters.empty()) return kNever;
  return row.adapter()->has_embedding ? 0 : first_active(row);
}

/// Positions at the beginning of two rows that have the same keys and values, bit for bit: the
/// tokens are the same, and so are the adapters, or they do not act there.
int64_t num_common(const Sequence& a, const Sequence& b) {
  const auto length = static_cast<size_t>(std::min(a.prompt_tokens, b.prompt_tokens));
  const auto first = std::span(a.tokens).first(length), second = std::span(b.tokens).first(length);
  const int64_t same_tokens = std::ranges::mismatch(first, second).in1 - first.begin();
  const bool same_scales =
      std::ranges::equal(a.uses, b.uses, {}, &model::AdapterUse::scale, &model::AdapterUse::scale);
  if (a.adapters == b.adapters && same_scales) return same_tokens;
  return std::min({same_tokens, acts_from(a), acts_from(b)});
}

}  // namespace

int64_t first_active(const Sequence& row) {
  if (row.adapters.empty() || row.adapter()->invocation.empty()) return 0;
  const auto prompt = std::span(row.tokens).first(static_cast<size_t>(row.prompt_tokens));
  const std::vector<int32_t>& invocation = row.adapter()->invocation;
  // Clang 14, which builds the fuzz targets, does not compile that of std::ranges.
  const auto found =
      std::find_end(prompt.begin(), prompt.end(), invocation.begin(), invocation.end());
  return found == prompt.end() ? kNever : found - prompt.begin();
}

void share_prefix(Sequence& row, std::span<Sequence* const> others, int64_t page_size) {
  for (const Sequence* other : others) {
    const int64_t common = std::min(num_common(row, *other), row.prompt_tokens - 1);
    const int64_t num_shared = common / page_size * page_size;
    if (num_shared <= row.num_shared) continue;
    row.leader = other->id;
    row.num_shared = num_shared;
  }
}

}  // namespace heddle
