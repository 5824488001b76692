#include "heddle/core/overlap.h"

#include <algorithm>
#include <array>
#include <ostream>

namespace heddle {
namespace {

/// More elements than this from the first to the last place fit no memory.
constexpr int64_t kMaxReach = int64_t{1} << 60;

/// Places 0, stride, ..., most * stride in memory; both above 0.
struct Axis {
  int64_t stride = 0, most = 0;
};
using Axes = std::span<const Axis>;

/// From the first to the last place of all axes together.
int64_t reach_of(Axes axes) {
  int64_t reach = 0;
  for (const Axis& axis : axes) reach += axis.stride * axis.most;
  return reach;
}

/// Whether two places of these axes lie `distance` apart: for some number of steps along the first
/// axis the others make up for the rest. Each number that is tried takes one of `tries`; where none
/// is left, they do.
bool are_apart(Axes axes, int64_t distance, int64_t& tries) {
  if (distance < 0) distance = -distance;
  if (axes.empty()) return distance == 0;
  const Axis axis = axes.front();
  const Axes others = axes.subspan(1);
  const int64_t reach = reach_of(others);
  const int64_t least = distance > reach ? (distance - reach - 1) / axis.stride + 1
                                         : -std::min(axis.most, (reach - distance) / axis.stride);
  const int64_t most = std::min(axis.most, (distance + reach) / axis.stride);
  for (int64_t steps = least; steps <= most; ++steps) {
    if (--tries < 0 || are_apart(others, distance - steps * axis.stride, tries)) return true;
  }
  return false;
}

/// The axes of more than one place.
struct SortedAxes {
  std::array<Axis, kMaxRank> axes{};  // the longest step first
  size_t count = 0;                   // 0, too, where an element lies beyond all memory
  bool has_step_zero = false;

  SortedAxes(std::span<const int64_t> shape, std::span<const int64_t> strides) {
    int64_t reach = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      Axis axis{strides[d], shape[d] - 1};
      int64_t length = 0;
      if (__builtin_mul_overflow(axis.stride, axis.most, &length) || length > kMaxReach ||
          length < -kMaxReach || (reach += length < 0 ? -length : length) > kMaxReach) {
        count = 0;
        return;
      }
      if (axis.stride < 0) axis.stride = -axis.stride;
      has_step_zero |= axis.stride == 0;
      axes[count++] = axis;
    }
    std::sort(axes.begin(), axes.begin() + count,
              [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  }
};

/// Whether each axis, in the order of the tensor, steps over all places of those after it.
bool is_nested(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t reach = 0;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    int64_t length = 0;
    if (strides[d] <= reach || __builtin_mul_overflow(strides[d], shape[d] - 1, &length) ||
        __builtin_add_overflow(reach, length, &reach)) {
      return false;
    }
  }
  return true;
}

struct Listed {
  std::span<const int64_t> numbers;
  friend std::ostream& operator<<(std::ostream& out, const Listed& list) {
    const char* separator = "[";
    for (const int64_t number : list.numbers) {
      out << separator << number;
      separator = ", ";
    }
    return out << "]";
  }
};

}  // namespace

bool elements_overlap(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  if (is_nested(shape, strides) || std::ranges::find(shape, 0) != shape.end()) return false;
  const SortedAxes sorted(shape, strides);
  if (sorted.has_step_zero) return true;
  int64_t tries = kMaxOverlapTries;
  // Two places that differ along one of the axes, and not along those before it.
  for (Axes axes(sorted.axes.data(), sorted.count); !axes.empty(); axes = axes.subspan(1)) {
    const Axis axis = axes.front();
    const Axes others = axes.subspan(1);
    const int64_t most = std::min(axis.most, reach_of(others) / axis.stride);
    for (int64_t steps = 1; steps <= most; ++steps) {
      if (--tries < 0 || are_apart(others, steps * axis.stride, tries)) return true;
    }
  }
  return false;
}

void check_no_overlap(const char* tensor, const TensorView& t) {
  HEDDLE_CHECK(!elements_overlap(t.shape(), t.strides()), tensor,
               " has elements that overlap in memory, but the operation writes to it: shape ",
               Listed{t.shape()}, ", strides ", Listed{t.strides()});
}

}  // namespace heddle
