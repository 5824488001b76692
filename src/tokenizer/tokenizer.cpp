#include "tokenizer/tokenizer.h"

#include <utility>

#include "heddle/core/error.h"

#include "tokenizer/tokenizer_state.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary_state.h"

namespace heddle::tokenizer {

Tokenizer::Tokenizer(Vocabulary vocabulary) : state_(make_state(std::move(vocabulary))) {}
Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, ControlTokens control) const {
  HEDDLE_CHECK(text.size() < size_t{1} << 29, "a text has ", text.size(),
               " bytes, at most 536870911 are supported");
  std::vector<int32_t> ids;
  state_->encoder->encode(replace_invalid_utf8(text), control, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  DecodeState state;
  for (const int32_t id : ids) decode_next(id, state, bytes);
  decode_end(state, bytes);
  return bytes;
}

void Tokenizer::decode_next(int32_t id, DecodeState& state, std::string& bytes) const {
  const std::string_view token = token_bytes(id);
  if (state_->decoder == nullptr) {
    bytes += token;
  } else {
    state_->decoder->push(id, state, bytes);
  }
}

void Tokenizer::decode_end(DecodeState& state, std::string& bytes) const {
  if (state_->decoder != nullptr) state_->decoder->finish(state, bytes);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  HEDDLE_CHECK(id >= 0 && id < vocab_size(), "token ", id, " of a vocabulary of ", vocab_size());
  return state_->bytes[size_t(id)];
}

int32_t Tokenizer::find(std::string_view bytes) const {
  for (const IdByBytes* ids : {&state_->control_ids, &state_->ordinary_ids}) {
    const auto found = ids->find(bytes);
    if (found != ids->end()) return found->second;
  }
  return kNoToken;
}

bool Tokenizer::is_control(int32_t id) const {
  HEDDLE_CHECK(id >= 0 && id < vocab_size(), "token ", id, " of a vocabulary of ", vocab_size());
  return state_->control[size_t(id)];
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(state_->bytes.size()); }
int32_t Tokenizer::bos() const { return state_->bos; }
int32_t Tokenizer::eos() const { return state_->eos; }
std::span<const int32_t> Tokenizer::begin_tokens() const { return state_->begin; }
std::span<const int32_t> Tokenizer::end_tokens() const { return state_->end; }

}  // namespace heddle::tokenizer
