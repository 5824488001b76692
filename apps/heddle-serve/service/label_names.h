#pragma once

#include <cstddef>
#include <set>
#include <string>

namespace heddle::serve {

/// Names as labels of metrics, whose number is bounded: the first `most` that come keep theirs, all
/// later ones share "other".
class LabelNames {
 public:
  explicit LabelNames(size_t most) : most_(most) {}

  [[nodiscard]] std::string label_of(const std::string& name) {
    if (names_.contains(name)) return name;
    if (names_.size() >= most_) return "other";
    return *names_.insert(name).first;
  }

 private:
  size_t most_;
  std::set<std::string> names_;
};

}  // namespace heddle::serve
