#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::app {

/// Bytes of a size such as "2000000", "1500M", "8G" or "8GiB": a whole number and, after it, K, M,
/// G or T, which are powers of 1024, as are KiB, MiB, GiB and TiB; KB, MB, GB and TB are powers of
/// 1000; B is one byte. Upper and lower case are the same. Nothing for any other text, for 0, and
/// for more bytes than 63 bits hold.
[[nodiscard]] std::optional<int64_t> parse_byte_size(std::string_view text);

}  // namespace heddle::app
