// Strings as Python sees them, on UTF-8: sequences of code points, Unicode white space, the methods
// of str.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/values/limits.h"

namespace heddle::chat_template::text {

/// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. All functions below
/// assume it.
bool is_utf8(std::string_view s);
/// The code point at byte `pos`, which moves after it.
char32_t next_code_point(std::string_view s, size_t& pos);
/// The code point before byte `pos`, which moves to its start.
char32_t previous_code_point(std::string_view s, size_t& pos);
void append_code_point(std::string& s, char32_t c);

size_t length(std::string_view s);
/// The byte where code point `index` starts; s.size() for index >= length(s).
size_t byte_offset(std::string_view s, size_t index);

/// s[first], s[first + step] ... of `count` code points, all of which there are; step is not 0.
std::string slice(std::string_view s, size_t first, int64_t step, size_t count);

/// str.isspace() of one character.
bool is_space(char32_t c);
/// str.lstrip() and str.rstrip(): white space or, where given, the characters of `chars`. Take
/// memory of 4 bytes for each byte of it.
std::string_view strip_left(std::string_view s, std::optional<std::string_view> chars = {});
std::string_view strip_right(std::string_view s, std::optional<std::string_view> chars = {});

/// The first place of `needle` at or after byte `from`, or npos; takes time linear in s, unlike
/// string_view::find.
size_t find(std::string_view s, std::string_view needle, size_t from = 0);
/// str.count(): places without overlap; length + 1 for an empty needle.
size_t count(std::string_view s, std::string_view needle);
/// str.replace(): at most `limit` places, all for a negative limit.
std::string replace(std::string_view s, std::string_view from, std::string_view to, int64_t limit);

using Pieces = std::vector<std::string_view>;  // views into the argument
/// str.split() and str.rsplit(): at a separator or, without one, at runs of white space; a negative
/// limit is none. What they spend is the pieces; reading s is the caller's to spend.
Pieces split(Budget& budget, std::string_view s, std::optional<std::string_view> separator,
             int64_t limit);
Pieces split_right(Budget& budget, std::string_view s, std::optional<std::string_view> separator,
                   int64_t limit);
Pieces split_lines(Budget& budget, std::string_view s, bool keep_ends);

/// The case methods of str for ASCII, Latin-1, Latin Extended-A, Greek, Cyrillic, Armenian capitals
/// and letters, and Latin Extended Additional. Letters of other scripts that have case throw
/// Error(kUnsupported); what has no case stays. The result has at most twice the bytes of s.
std::string upper(std::string_view s);
std::string lower(std::string_view s);
std::string title(std::string_view s);
std::string capitalize(std::string_view s);
bool is_upper(std::string_view s);
bool is_lower(std::string_view s);

}  // namespace heddle::chat_template::text
