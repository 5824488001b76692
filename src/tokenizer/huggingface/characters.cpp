#include "tokenizer/huggingface/characters.h"

#include <algorithm>
#include <span>
#include <vector>

#include <utf8proc.h>

#include "heddle/core/error.h"

namespace heddle::tokenizer {
namespace {

struct Range {
  char32_t first, last;
};

// Where utf8proc knows Unicode 15 and the tokenizers package (0.23) an older one: characters that
// do not decompose there, of Unicode 11, and those that are punctuation in one of the two alone,
// since Unicode 8.
constexpr Range kNewerDecompositions[] = {
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x11938, 0x11938}, {0x1E030, 0x1E06D},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};
constexpr Range kOtherPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
    {0xC84, 0xC84},     {0x166D, 0x166D},   {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},
    {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89},
    {0x111C9, 0x111C9}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D},
    {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946},
    {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2},
    {0x11B00, 0x11B09}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8},
    {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};

bool is_in(std::span<const Range> ranges, char32_t character) {
  const auto range = std::ranges::lower_bound(ranges, character, {}, &Range::last);
  return range != ranges.end() && range->first <= character;
}

/// Appends the full decomposition of a character.
void decompose(char32_t character, utf8proc_option_t options, std::vector<int32_t>& characters) {
  if (character >= kNewerDecompositions[0].first && is_in(kNewerDecompositions, character)) {
    characters.push_back(static_cast<int32_t>(character));
    return;
  }
  constexpr utf8proc_ssize_t kLongest = 32;  // U+FDFA has 18
  int32_t parts[kLongest];
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character),
                                                         parts, kLongest, options, nullptr);
  if (count < 0 || count > kLongest) {  // no character that Unicode knows of
    characters.push_back(static_cast<int32_t>(character));
    return;
  }
  characters.insert(characters.end(), parts, parts + count);
}

int combining_class(int32_t character) {
  return character < 0x300 ? 0 : utf8proc_get_property(character)->combining_class;
}

/// Sorts each run of combining marks by class. utf8proc_decompose() does so in the square of a
/// run's length.
void sort_marks(std::vector<int32_t>& characters) {
  for (auto it = characters.begin(); it != characters.end();) {
    it = std::find_if(it, characters.end(), [](int32_t c) { return combining_class(c) != 0; });
    const auto end =
        std::find_if(it, characters.end(), [](int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(it, end,
                     [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    it = end;
  }
}

/// Whether a normal form leaves the text as it is because its characters are all low.
bool is_normal(std::string_view text, NormalForm form) {
  const bool composed = form == NormalForm::kNfc;  // characters below U+0300 are UTF-8 below 0xCC
  const uint8_t end = composed ? 0xCC : 0x80;
  return std::ranges::all_of(text, [end](char c) { return static_cast<uint8_t>(c) < end; });
}

}  // namespace

char32_t take_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return char32_t{static_cast<uint8_t>(text[at + i])}; };
  const char32_t lead = byte(0);
  char32_t character = lead;
  size_t size = 1;
  if (lead >= 0xF0) {
    size = 4;
    character = (lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
  } else if (lead >= 0xE0) {
    size = 3;
    character = (lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
  } else if (lead >= 0x80) {
    size = 2;
    character = (lead & 31) << 6 | (byte(1) & 63);
  }
  at += size;
  return character;
}

void append_character(char32_t character, std::string& text) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (character < 0x80) return add(character);
  if (character >= 0x10000) {
    add(0xF0 | character >> 18);
    add(0x80 | (character >> 12 & 63));
  } else if (character >= 0x800) {
    add(0xE0 | character >> 12);
  } else {
    add(0xC0 | character >> 6);
    return add(0x80 | (character & 63));
  }
  add(0x80 | (character >> 6 & 63));
  add(0x80 | (character & 63));
}

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return c > ' ' && c < 0x7F && !letter && !is_numeric(c);
  }
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  const bool punctuation = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
  return punctuation != is_in(kOtherPunctuation, c);
}

bool is_word_character(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_numeric(c) || c == '_';
  }
  const bool circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                       (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if (circled || c == 0x200C || c == 0x200D) return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (is_normal(text, form)) return std::string(text);
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<int32_t> characters;
  characters.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    decompose(take_character(text, at), options, characters);
  }
  sort_marks(characters);
  if (composed) {
    const auto length = utf8proc_normalize_utf32(
        characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    HEDDLE_CHECK(length >= 0, "utf8proc cannot compose a text of ", text.size(),
                 " bytes, its error is ", length);
    characters.resize(static_cast<size_t>(length));
  }
  std::string result;
  result.reserve(text.size());
  for (const int32_t c : characters) append_character(static_cast<char32_t>(c), result);
  return result;
}

std::string to_lower(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = take_character(text, at);
    if (c == 0x130) {  // the one character whose lower case has two: "i̇"
      result += "i\xCC\x87";
    } else {
      const auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(c));
      append_character(static_cast<char32_t>(lower), result);
    }
  }
  return result;
}

}  // namespace heddle::tokenizer
