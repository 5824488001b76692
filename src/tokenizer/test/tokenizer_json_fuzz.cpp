// Any bytes, as a tokenizer.json: it is refused by a heddle::Error, or it encodes and decodes. The
// text comes after the file, after a zero byte.

#include <cstdlib>
#include <span>
#include <string>

#include "heddle/core/error.h"

#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const Tokenizer& tokenizer, std::string_view text) {
  for (const ControlTokens control : {ControlTokens::kParse, ControlTokens::kPlain}) {
    const auto ids = tokenizer.encode(text, control);
    DecodeState state;
    Utf8Stream stream;
    std::string streamed, bytes;
    for (const int32_t id : ids) {
      require(id >= 0 && id < tokenizer.vocab_size());
      bytes.clear();
      tokenizer.decode_next(id, state, bytes);
      streamed += stream.push(bytes);
    }
    bytes.clear();
    tokenizer.decode_end(state, bytes);
    streamed += stream.push(bytes);
    streamed += stream.finish();
    require(streamed == replace_invalid_utf8(tokenizer.decode(ids)));
  }
}

}  // namespace
}  // namespace heddle::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  try {
    const Tokenizer tokenizer = read_tokenizer_json(input.substr(0, end), "fuzz");
    check(tokenizer, end == input.npos ? "ab \xC3\xA9" : input.substr(end + 1));
  } catch (const heddle::Error&) {
  }
  return 0;
}
