#include "tokenizer/pre_tokenizer_families.h"

#include <string>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::tokenizer {
namespace {

// White space is written [\s], inside brackets alone, because pre_tokenizer.cpp spells it out.
// Letters and numbers are Unicode's general categories L and N, of the Unicode version that PCRE2
// knows. Of white space before a word, the negative lookahead leaves over the last character: that
// word's pattern may take it. No pattern may scan a run of characters more often than a fixed
// number of times.
constexpr const char* kEachNumber = R"(\p{N})";
constexpr const char* kUpToThreeNumbers = R"(\p{N}{1,3})";
constexpr const char* kThreeDigits = R"([0-9][0-9][0-9])";
constexpr const char* kLineBreak = R"([\r\n])";

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[\s]+(?![^\s])|[\s]+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"([\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"([\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
// As kQwen2, but marks belong to the letters.
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
// As kQwen2, but signs do not take the line breaks after them.
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|)"
    R"([\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";

// A capital begins a word: letters of upper case, then of lower case; those without case are both.
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n\/]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";
// As kTekken, but contractions end a word, and three numbers make one.
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n\/]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";

// The signs that Falcon cuts out: punctuation of Unicode and of ASCII.
constexpr const char* kSigns = R"([\p{P}$+<=>^`~|]+)";
// The same without the grave accent.
constexpr const char* kDefaultSigns = R"([\p{P}$+<=>^~|]+)";
constexpr const char* kNumbers = R"(\p{N}+)";

// DeepSeek's: letters that have case, of an older Unicode; signs; spaces at the end, which are
// looked for at the beginning of a run only; and letters from Samaritan to Han, and Hangul.
constexpr const char* kCasedLetters =
    R"([\s]?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"
    R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"
    R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"
    R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126})"
    R"(\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})"
    R"(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3})"
    R"(\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"
    R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2})"
    R"(\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr const char* kDeepSeekSigns =
    R"([\s]?[!-\/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
constexpr const char* kSpacesAtEnd = R"((?<![\s])[\s]++\z)";
constexpr const char* kAsianLetters = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)";
constexpr const char* kSpaceAndLetters = R"([\s]?\p{L}+)";
constexpr const char* kSpaceAndPunctuation = R"([\s]?\p{P}+)";
// Those of V3: Han and Kana by themselves, then words, where an ASCII sign may begin a Latin one.
constexpr const char* kHanAndKana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)";
constexpr const char* kDeepSeekV3 =
    R"([!"#$%&'()*+,\-.\/:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|[\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";

// All but white space, parentheses, bars and what ends a sentence or a clause.
constexpr const char* kBloom =
    R"( ?[^\s(|.,!?)\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C}]+)";

constexpr PreTokenizerFamily kFamilies[] = {
    {"gpt-2", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"mpt", {kGpt2}},
    {"olmo", {kGpt2}},
    {"jais", {kGpt2}},
    {"gigachat", {kGpt2}},
    {"mellum", {kGpt2}},
    {"a.x-4.0", {kGpt2}},
    {"exaone4", {kGpt2}},
    {"trillion", {kGpt2}},
    {"granite-docling", {kGpt2}},
    {"smollm", {kEachNumber, kGpt2}},
    {"starcoder", {kEachNumber, kGpt2}},
    {"refact", {kEachNumber, kGpt2}},
    {"command-r", {kEachNumber, kGpt2}},
    {"codeshell", {kEachNumber, kGpt2}},
    {"exaone", {kEachNumber, kGpt2}},
    {"minerva-7b", {kEachNumber, kGpt2}},
    {"mellum2", {kEachNumber, kGpt2}},
    {"llama-bpe", {kLlama3}, true},
    {"llama3", {kLlama3}, true},
    {"llama-v3", {kLlama3}, true},
    {"falcon3", {kLlama3}, true},
    {"falcon-h1", {kLlama3}, true},
    {"pixtral", {kLlama3}, true},
    {"midm-2.0", {kLlama3}, true},
    {"lfm2", {kLlama3}, true},
    {"glm4", {kLlama3}, true},
    {"glm5", {kLlama3}, true},
    {"chatglm-bpe", {kLlama3}},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"minicpm5", {kUpToThreeNumbers, kLlama3}, true},
    {"qwen2", {kQwen2}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"kormo", {kQwen2}},
    {"megrez", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"hunyuan", {kQwen2}},
    {"solar-open", {kQwen2}},
    {"grok-2", {kQwen2}},
    {"bailingmoe", {kQwen2}},
    {"bailingmoe2", {kQwen2}},
    {"llada-moe", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"seed-coder", {kSeedCoder}},
    {"tekken", {kTekken}, true},
    {"gpt-4o", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"kanana2", {kGpt4o}},
    {"talkie", {kGpt4o}},
    {"minimax-m2", {kGpt4o}},
    {"falcon", {kSigns, kGpt2, kThreeDigits}},
    {"deepseek-llm",
     {kLineBreak, kCasedLetters, kDeepSeekSigns, kSpacesAtEnd, kAsianLetters, kEachNumber}},
    {"deepseek-coder",
     {kLineBreak, kSpaceAndLetters, kSpaceAndPunctuation, kAsianLetters, kEachNumber}},
    {"deepseek-v3", {kUpToThreeNumbers, kHanAndKana, kDeepSeekV3}},
    {"hunyuan-dense", {kUpToThreeNumbers, kHanAndKana, kDeepSeekV3}},
    {"hy_v4", {kUpToThreeNumbers, kHanAndKana, kDeepSeekV3}},
    {"joyai-llm", {kUpToThreeNumbers, kHanAndKana, kDeepSeekV3}},
    {"bloom", {kBloom}},
    {"gpt3-finnish", {kBloom}},
    {"poro-chat", {kBloom}},
    {"viking", {kBloom, kEachNumber}},
    {"default", {kDefaultSigns, kGpt2, kNumbers, kThreeDigits}},
};

}  // namespace

const PreTokenizerFamily& find_pre_tokenizer_family(std::string_view name) {
  std::string known;
  for (const PreTokenizerFamily& family : kFamilies) {
    if (family.name == name) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw_error(ErrorCode::kUnsupported, "pre-tokenizer ", files::quote(name),
              " is not supported; supported: ", known);
}

}  // namespace heddle::tokenizer
