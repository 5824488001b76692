#include "chat_template/values/character.h"

#include "heddle/core/error.h"

namespace heddle::chat_template::text {
namespace {

struct KindRange {
  char32_t first, last;
  CharacterKind kind;
};
constexpr CharacterKind kLetter = CharacterKind::kLetter, kOther = CharacterKind::kOther;
constexpr KindRange kKinds[] = {{0x00, 0x2F, kOther},
                                {'0', '9', CharacterKind::kDecimal},
                                {0x3A, 0x40, kOther},
                                {'A', 'Z', kLetter},
                                {0x5B, 0x60, kOther},
                                {'a', 'z', kLetter},
                                {0x7B, 0xA9, kOther},
                                {0xAA, 0xAA, kLetter},
                                {0xAB, 0xB1, kOther},
                                {0xB2, 0xB3, CharacterKind::kDigit},
                                {0xB4, 0xB4, kOther},
                                {0xB5, 0xB5, kLetter},
                                {0xB6, 0xB8, kOther},
                                {0xB9, 0xB9, CharacterKind::kDigit},
                                {0xBA, 0xBA, kLetter},
                                {0xBB, 0xBB, kOther},
                                {0xBC, 0xBE, CharacterKind::kNumeric},
                                {0xBF, 0xBF, kOther},
                                {0xC0, 0xD6, kLetter},
                                {0xD7, 0xD7, kOther},
                                {0xD8, 0xF6, kLetter},
                                {0xF7, 0xF7, kOther},
                                {0xF8, 0x2C1, kLetter},
                                {0x300, 0x36F, kOther},
                                {0x370, 0x374, kLetter},
                                {0x376, 0x377, kLetter},
                                {0x37A, 0x37D, kLetter},
                                {0x37E, 0x37E, kOther},
                                {0x37F, 0x37F, kLetter},
                                {0x384, 0x385, kOther},
                                {0x386, 0x386, kLetter},
                                {0x387, 0x387, kOther},
                                {0x388, 0x38A, kLetter},
                                {0x38C, 0x38C, kLetter},
                                {0x38E, 0x3A1, kLetter},
                                {0x3A3, 0x3F5, kLetter},
                                {0x3F6, 0x3F6, kOther},
                                {0x3F7, 0x481, kLetter},
                                {0x482, 0x489, kOther},
                                {0x48A, 0x52F, kLetter},
                                {0x531, 0x556, kLetter},
                                {0x560, 0x588, kLetter},
                                {0x2000, 0x206F, kOther},
                                {0x20A0, 0x20C0, kOther},
                                {0x2190, 0x23FF, kOther},
                                {0x2500, 0x2775, kOther},
                                {0x3000, 0x3004, kOther},
                                {0x3008, 0x3020, kOther},
                                {0x3041, 0x3096, kLetter},
                                {0x30A1, 0x30FA, kLetter},
                                {0x3400, 0x4DBF, CharacterKind::kIdeograph},
                                {0x4E00, 0x9FFF, CharacterKind::kIdeograph},
                                {0xAC00, 0xD7A3, kLetter},
                                {0xFE00, 0xFE0F, kOther},
                                {0x1F300, 0x1FAFF, kOther}};

}  // namespace

CharacterKind kind_of(char32_t c) {
  for (const auto& [first, last, kind] : kKinds) {
    if (c < first) break;
    if (c <= last) return kind;
  }
  throw_error(ErrorCode::kUnsupported, "whether U+", std::hex, std::uppercase,
              static_cast<uint32_t>(c), " is a letter or a number");
}

}  // namespace heddle::chat_template::text
