// Upper and lower case of the scripts that chat templates and their messages use most.
#include <algorithm>

#include "heddle/core/error.h"

#include "chat_template/values/text.h"

namespace heddle::chat_template::text {
namespace {

/// Capitals `first`, first + step ... `last`, each `delta` below its small letter.
struct CaseRange {
  char32_t first, last;
  int delta;
  char32_t step;
};
constexpr CaseRange kPairs[] = {
    {'A', 'Z', 32, 1},     {0xC0, 0xD6, 32, 1},     {0xD8, 0xDE, 32, 1},    {0x100, 0x12E, 1, 2},
    {0x132, 0x136, 1, 2},  {0x139, 0x147, 1, 2},    {0x14A, 0x176, 1, 2},   {0x178, 0x178, -121, 1},
    {0x179, 0x17D, 1, 2},  {0x370, 0x372, 1, 2},    {0x376, 0x376, 1, 1},   {0x37F, 0x37F, 116, 1},
    {0x386, 0x386, 38, 1}, {0x388, 0x38A, 37, 1},   {0x38C, 0x38C, 64, 1},  {0x38E, 0x38F, 63, 1},
    {0x391, 0x3A1, 32, 1}, {0x3A3, 0x3AB, 32, 1},   {0x3D8, 0x3EE, 1, 2},   {0x3F7, 0x3F7, 1, 1},
    {0x3FA, 0x3FA, 1, 1},  {0x3FD, 0x3FF, -130, 1}, {0x400, 0x40F, 80, 1},  {0x410, 0x42F, 32, 1},
    {0x460, 0x480, 1, 2},  {0x48A, 0x4BE, 1, 2},    {0x4C0, 0x4C0, 15, 1},  {0x4C1, 0x4CD, 1, 2},
    {0x4D0, 0x52E, 1, 2},  {0x531, 0x556, 48, 1},   {0x1E00, 0x1E94, 1, 2}, {0x1EA0, 0x1EFE, 1, 2}};

/// Letters whose capital is not theirs alone, or longer than one letter.
struct Special {
  char32_t letter;
  const char32_t* upper;
  const char32_t* title;
};
constexpr Special kSpecials[] = {{0xB5, U"\u039C", U"\u039C"},
                                 {0xDF, U"SS", U"Ss"},
                                 {0x131, U"I", U"I"},
                                 {0x149, U"\u02BCN", U"\u02BCN"},
                                 {0x17F, U"S", U"S"},
                                 {0x3C2, U"\u03A3", U"\u03A3"},
                                 {0x587, U"\u0535\u0552", U"\u0535\u0582"}};

constexpr char32_t kDottedCapitalI = 0x130;  // its small form is i and a combining dot

/// Letters with case that the tables leave out.
constexpr char32_t kRefused[][2] = {
    {0x180, 0x1BA},     {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2B8},
    {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},
    {0x390, 0x390},     {0x3B0, 0x3B0},     {0x3CF, 0x3D7},     {0x3EF, 0x3F6},
    {0x3F8, 0x3FC},     {0x560, 0x560},     {0x588, 0x588},     {0x10A0, 0x10FF},
    {0x13A0, 0x13FF},   {0x1C80, 0x1CBF},   {0x1D00, 0x1DBF},   {0x1E96, 0x1E9F},
    {0x1F00, 0x1FFF},   {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},   {0x2145, 0x2149},
    {0x214E, 0x214E},   {0x2160, 0x2188},   {0x24B6, 0x24E9},   {0x2C00, 0x2D2F},
    {0xA640, 0xA69F},   {0xA720, 0xA7FF},   {0xAB30, 0xABBF},   {0xFB00, 0xFB17},
    {0xFF21, 0xFF5A},   {0x10400, 0x104FF}, {0x10570, 0x105BF}, {0x10780, 0x107BA},
    {0x10C80, 0x10CFF}, {0x118A0, 0x118DF}, {0x16E40, 0x16E7F}, {0x1D400, 0x1D7FF},
    {0x1DF00, 0x1DF2A}, {0x1E030, 0x1E06D}, {0x1E900, 0x1E943}, {0x1F130, 0x1F189}};

const Special* find_special(char32_t c) {
  const auto* found = std::find_if(std::begin(kSpecials), std::end(kSpecials),
                                   [&](const Special& special) { return special.letter == c; });
  return found == std::end(kSpecials) ? nullptr : found;
}

bool in_range(char32_t c, char32_t first, char32_t last, char32_t step) {
  return c >= first && c <= last && (c - first) % step == 0;
}

char32_t add(char32_t c, int delta) { return static_cast<char32_t>(static_cast<int>(c) + delta); }

char32_t small_of(char32_t c) {
  for (const CaseRange& pair : kPairs) {
    if (in_range(c, pair.first, pair.last, pair.step)) return add(c, pair.delta);
  }
  return c;
}
char32_t capital_of(char32_t c) {
  if (c == 0x3C2) return 0x3A3;  // both small sigmas
  for (const CaseRange& pair : kPairs) {
    if (in_range(c, add(pair.first, pair.delta), add(pair.last, pair.delta), pair.step)) {
      return add(c, -pair.delta);
    }
  }
  return c;
}

bool is_capital(char32_t c) { return small_of(c) != c || c == kDottedCapitalI; }
bool is_small(char32_t c) {
  return capital_of(c) != c || find_special(c) != nullptr || c == 0x138 || c == 0xAA || c == 0xBA;
}
bool is_cased(char32_t c) { return is_capital(c) || is_small(c); }

/// What stands between letters without ending the word, as the final sigma sees it: an
/// approximation by the signs of ASCII and Latin-1 and the combining marks of the supported
/// scripts.
bool is_case_ignorable(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD ||
         c == 0xAF || c == 0xB4 || c == 0xB7 || c == 0xB8 || (c >= 0x2B0 && c <= 0x36F) ||
         c == 0x2018 || c == 0x2019;
}

/// As next_code_point(), of letters that the tables know.
char32_t next_letter(std::string_view s, size_t& pos) {
  const char32_t c = next_code_point(s, pos);
  for (const auto& [first, last] : kRefused) {
    if (c < first) break;
    if (c > last) continue;
    throw_error(ErrorCode::kUnsupported, "upper and lower case of U+", std::hex, std::uppercase,
                static_cast<uint32_t>(c));
  }
  return c;
}

void append(std::string& out, const char32_t* letters) {
  for (; *letters != 0; ++letters) append_code_point(out, *letters);
}
void append_upper(std::string& out, char32_t c) {
  const Special* special = find_special(c);
  special == nullptr ? append_code_point(out, capital_of(c)) : append(out, special->upper);
}
void append_title(std::string& out, char32_t c) {
  const Special* special = find_special(c);
  special == nullptr ? append_code_point(out, capital_of(c)) : append(out, special->title);
}

/// A capital sigma becomes the final small one after a letter and before none. [start, end): where
/// it stands in s.
bool is_final_sigma(std::string_view s, size_t start, size_t end) {
  const auto next = [&] { return end < s.size() ? next_code_point(s, end) : U'\0'; };
  const auto previous = [&] { return start > 0 ? previous_code_point(s, start) : U'\0'; };
  char32_t c = previous();
  while (is_case_ignorable(c)) c = previous();
  if (!is_cased(c)) return false;
  c = next();
  while (is_case_ignorable(c)) c = next();
  return !is_cased(c);
}

/// Appends the small form of c, which stands in s at [start, end).
void append_lower(std::string& out, char32_t c, std::string_view s, size_t start, size_t end) {
  if (c == kDottedCapitalI) {
    append(out, U"i\u0307");
  } else if (c == 0x3A3 && is_final_sigma(s, start, end)) {
    append_code_point(out, 0x3C2);
  } else {
    append_code_point(out, small_of(c));
  }
}

/// Whether there are letters with case, and all of them have the wanted one.
template <class IsWanted>
bool all_cased(std::string_view s, const IsWanted& is_wanted) {
  bool is_any_cased = false, are_all_wanted = true;
  for (size_t pos = 0; pos < s.size();) {
    const char32_t c = next_letter(s, pos);
    if (!is_cased(c)) continue;
    is_any_cased = true;
    are_all_wanted = are_all_wanted && is_wanted(c);
  }
  return is_any_cased && are_all_wanted;
}

/// A letter for which `is_first` holds becomes a title letter, the others small. is_first is given
/// the byte where it stands and the letter before, 0 where there is none.
template <class IsFirst>
std::string small_after_first(std::string_view s, const IsFirst& is_first) {
  std::string out;
  char32_t before = 0;
  for (size_t pos = 0; pos < s.size();) {
    const size_t start = pos;
    const char32_t c = next_letter(s, pos);
    is_first(start, before) ? append_title(out, c) : append_lower(out, c, s, start, pos);
    before = c;
  }
  return out;
}

}  // namespace

std::string upper(std::string_view s) {
  std::string out;
  for (size_t pos = 0; pos < s.size();) append_upper(out, next_letter(s, pos));
  return out;
}

std::string lower(std::string_view s) {
  return small_after_first(s, [](size_t, char32_t) { return false; });
}
std::string title(std::string_view s) {
  return small_after_first(s, [](size_t, char32_t before) { return !is_cased(before); });
}
std::string capitalize(std::string_view s) {
  return small_after_first(s, [](size_t start, char32_t) { return start == 0; });
}

bool is_upper(std::string_view s) { return all_cased(s, is_capital); }
bool is_lower(std::string_view s) { return all_cased(s, is_small); }

}  // namespace heddle::chat_template::text
