#include "engine/drafts/ngram_drafts.h"

#include <algorithm>
#include <array>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {
namespace {

// The op writes kNoToken after the drafts, where these here are not touched.
constexpr size_t kMaxNgramDrafts = 64;

}  // namespace

size_t propose_from_ngrams(std::span<const int32_t> tokens, std::span<int32_t> drafts,
                           const NgramOptions& options) {
  std::array<int32_t, kMaxNgramDrafts> found{};
  const auto max_drafts = static_cast<int64_t>(std::min(drafts.size(), found.size()));
  const std::array<int64_t, 1> length = {std::ssize(tokens)};
  std::array<int64_t, 1> count{};
  propose_ngram_drafts(ExecContext{}, host_view(found.data(), {1, max_drafts}),
                       host_view(count.data(), {1}), host_view(tokens.data(), {1, length[0]}),
                       host_view(length.data(), {1}), max_drafts, {}, options);
  const auto num_drafts = static_cast<size_t>(count[0]);
  std::ranges::copy(std::span(found).first(num_drafts), drafts.begin());
  return num_drafts;
}

}  // namespace heddle
