#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace heddle {

class ValuePlaces;

/// A place that a row holds while it runs; it is free again when this is destroyed.
class ValuePlace {
 public:
  ValuePlace() = default;
  ValuePlace(ValuePlaces& of, int32_t index) : of_(&of), index_(index) {}
  ValuePlace(ValuePlace&& other) noexcept
      : of_(std::exchange(other.of_, nullptr)), index_(other.index_) {}
  ValuePlace& operator=(ValuePlace&& other) noexcept {
    std::swap(of_, other.of_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~ValuePlace();

  [[nodiscard]] bool is_empty() const { return of_ == nullptr; }
  [[nodiscard]] int32_t index() const { return index_; }

 private:
  ValuePlaces* of_ = nullptr;
  int32_t index_ = -1;
};

/// Where the device collects the numbers of rows that want values: a place for each row that may
/// run. It outlives the places that were taken.
class ValuePlaces {
 public:
  explicit ValuePlaces(int64_t count) {
    for (int64_t i = count; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
  }
  ValuePlaces(const ValuePlaces&) = delete;
  ValuePlaces& operator=(const ValuePlaces&) = delete;

  /// One that is free; there is one while fewer rows run than there are places.
  [[nodiscard]] ValuePlace take() {
    const int32_t index = free_.back();
    free_.pop_back();
    return {*this, index};
  }

 private:
  friend class ValuePlace;
  std::vector<int32_t> free_;  // with room for all
};

inline ValuePlace::~ValuePlace() {
  if (of_ != nullptr) of_->free_.push_back(index_);
}

}  // namespace heddle
