#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::serve {

/// The answers that are not finished: those for which the batch has places, and after them a line
/// of at most `length`.
struct WaitingLine {
  int64_t num_places = 0;  // of the batch
  int64_t length = 0;      // --max-waiting
  int64_t num_rows = 0;    // that are not finished

  [[nodiscard]] bool has_room(int64_t count) const {
    return count <= num_places + length - num_rows;
  }

  /// Whether a tenant, of which num_waiting have no token yet, may have `count` more. Of those that
  /// have to wait the last one still finds as many places free as the tenant then has in the line:
  /// one tenant alone takes half of it, two a third each, and who has none in it finds a place.
  [[nodiscard]] bool has_room_for_tenant(int64_t count, int64_t num_waiting) const {
    const int64_t num_wait = count - std::max<int64_t>(num_places - num_rows, 0);
    if (num_wait <= 0) return true;
    const int64_t num_in_line = std::max<int64_t>(num_rows - num_places, 0);
    const int64_t num_own = std::min(num_waiting, num_in_line);  // the others are in the batch
    return num_own + num_wait <= length - num_in_line - (num_wait - 1);
  }
};

}  // namespace heddle::serve
