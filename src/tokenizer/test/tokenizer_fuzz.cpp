// Any bytes, as text: encoding and decoding must give back the text, broken UTF-8 replaced,
// whatever the pre-tokenizer. The first byte picks the pre-tokenizer and what control tokens are.

#include <cstdlib>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

/// All bytes and a few merges and added tokens.
Vocabulary small_vocabulary(const char* pre_tokenizer) {
  Vocabulary vocabulary;
  for (unsigned invisible = 0x100, byte = 0; byte < 256; ++byte) {
    const bool visible = (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const unsigned character = visible ? byte : invisible++;
    std::string token;
    if (character >= 0x80) token += static_cast<char>(0xC0u | character >> 6);
    token += static_cast<char>(character >= 0x80 ? 0x80u | (character & 0x3Fu) : character);
    vocabulary.tokens.push_back(token);
  }
  for (const char* token : {"Ġa", "aa", "aaa", "he", "Ġt", "Ġthe", "ĠĠ", "Ã©", "ðŁ"}) {
    vocabulary.tokens.emplace_back(token);
  }
  vocabulary.merges = {"Ġ t", "h e", "Ġt he", "a a", "Ġ a", "Ġ Ġ", "aa a", "Ã ©", "ð Ł"};
  vocabulary.types.assign(vocabulary.tokens.size(), TokenType::kNormal);
  for (const char* token : {"<|im", "\n\n", "é→", "the the"}) {
    vocabulary.tokens.emplace_back(token);
    vocabulary.types.push_back(TokenType::kUserDefined);
  }
  for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
    vocabulary.tokens.emplace_back(token);
    vocabulary.types.push_back(TokenType::kControl);
  }
  vocabulary.pre_tokenizer = pre_tokenizer;
  return vocabulary;
}

void require(bool holds) {
  if (!holds) std::abort();
}

void check_round_trip(const Tokenizer& tokenizer, std::string_view bytes, ControlTokens control) {
  const std::string text = replace_invalid_utf8(bytes);
  const auto ids = tokenizer.encode(bytes, control);
  require(tokenizer.decode(ids) == text);
  require(tokenizer.encode(text, control) == ids);

  Utf8Stream stream;  // tokens cut characters apart, the stream joins them
  std::string streamed;
  for (const int32_t id : ids) {
    require(control == ControlTokens::kParse || !tokenizer.is_control(id));
    streamed += stream.push(tokenizer.token_bytes(id));
  }
  require(streamed + stream.finish() == text);
}

}  // namespace
}  // namespace heddle::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::tokenizer;
  static const std::vector<Tokenizer> tokenizers = [] {
    std::vector<Tokenizer> all;
    for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
      all.emplace_back(small_vocabulary(name));
    }
    return all;
  }();
  if (size == 0) return 0;
  const auto control = data[0] & 4 ? ControlTokens::kPlain : ControlTokens::kParse;
  check_round_trip(tokenizers[data[0] % tokenizers.size()],
                   {reinterpret_cast<const char*>(data + 1), size - 1}, control);
  return 0;
}
