#include "engine/drafts/predicted_text.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/digest.h"

namespace heddle {
namespace {

// Two tokens are often the same by chance: more places would cost more drafts that fail than they
// find.
constexpr size_t kNearTokens = 64;     // after the old place
constexpr size_t kMaxCollisions = 64;  // places of one bucket that are compared, on either side

}  // namespace

PredictedText::PredictedText(std::vector<int32_t> prediction) : prediction_(std::move(prediction)) {
  if (prediction_.size() < kFarMatch) return;
  const size_t num_places = prediction_.size() - kFarMatch + 1;
  starts_.assign(std::bit_ceil(num_places) + 1, 0);
  const auto bucket_before = [this](size_t place) {
    return bucket_of(std::span(prediction_).subspan(place - kFarMatch, kFarMatch));
  };
  for (size_t place = kFarMatch; place <= prediction_.size(); ++place) {
    ++starts_[bucket_before(place)];
  }
  uint32_t sum = 0;
  for (uint32_t& start : starts_) start = sum += start;  // the ends, for now
  places_.resize(num_places);
  for (size_t place = prediction_.size(); place >= kFarMatch; --place) {
    places_[--starts_[bucket_before(place)]] = static_cast<uint32_t>(place);
  }
}

size_t PredictedText::bucket_of(std::span<const int32_t> tokens) const {
  return hash64(std::as_bytes(tokens), 0) & (starts_.size() - 2);
}

void PredictedText::append(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) append(token);
}

void PredictedText::append(int32_t token) {
  std::shift_left(last_.begin(), last_.end(), 1);
  last_.back() = token;
  num_last_ = std::min(num_last_ + 1, kFarMatch);
  if (has_place_ && place_ < prediction_.size() && prediction_[place_] == token) {
    set_place(place_ + 1, num_matched_ + 1);
  } else {
    find_place();
  }
}

void PredictedText::set_place(size_t place, size_t num_matched) {
  has_place_ = true;
  place_ = place;
  num_matched_ = num_matched;
  if (num_matched >= kSureMatch) old_place_ = place;
}

void PredictedText::find_place() {
  if (const auto near = find_near()) {
    set_place(*near, kNearMatch);
  } else if (const auto far = find_far()) {
    set_place(*far, kFarMatch);
  } else {
    has_place_ = false;
  }
}

/// Whether the last num_tokens of the answer are those before the place.
bool PredictedText::is_after_last(size_t place, size_t num_tokens) const {
  return place >= num_tokens &&
         std::equal(last_.end() - static_cast<std::ptrdiff_t>(num_tokens), last_.end(),
                    prediction_.begin() + static_cast<std::ptrdiff_t>(place - num_tokens));
}

std::optional<size_t> PredictedText::find_near() const {
  if (num_last_ < kNearMatch) return std::nullopt;
  const size_t end = std::min(prediction_.size(), old_place_ + kNearTokens);
  for (size_t place = old_place_ + 1; place <= end; ++place) {
    if (is_after_last(place, kNearMatch)) return place;
  }
  return std::nullopt;
}

std::optional<size_t> PredictedText::find_far() const {
  if (num_last_ < kFarMatch || places_.empty()) return std::nullopt;
  const size_t bucket = bucket_of(last_);
  const auto begin = places_.begin() + starts_[bucket];
  const auto end = places_.begin() + starts_[bucket + 1];
  const auto after = std::upper_bound(begin, end, old_place_);
  const auto is_same = [this](uint32_t place) { return is_after_last(place, kFarMatch); };
  const auto last = after + std::min<std::ptrdiff_t>(end - after, kMaxCollisions);
  const auto found = std::find_if(after, last, is_same);
  if (found != last) return *found;
  const auto first = after - std::min<std::ptrdiff_t>(after - begin, kMaxCollisions);
  for (auto each = after; each != first;) {
    if (is_same(*--each)) return *each;
  }
  return std::nullopt;
}

std::span<const int32_t> PredictedText::propose(size_t max_drafts) const {
  if (!has_place_) return {};
  const auto rest = std::span(prediction_).subspan(place_);
  return rest.first(std::min(rest.size(), max_drafts));
}

std::optional<size_t> PredictedText::place() const {
  if (!has_place_) return std::nullopt;
  return place_;
}

size_t PredictedText::num_bytes() const {
  return prediction_.capacity() * sizeof(int32_t) +
         (starts_.capacity() + places_.capacity()) * sizeof(uint32_t);
}

}  // namespace heddle
