#include "tokenizer/huggingface/decoder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/huggingface/characters.h"
#include "tokenizer/huggingface/normalizer.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

/// The byte of a token such as "<0x0A>".
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned byte = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    // A plus sign is what the tokenizers package lets stand before a digit.
    if (c == '+' && byte == 0 && &c == &token[3]) continue;
    if (!digit && (lower < 'a' || lower > 'f')) return std::nullopt;
    byte = byte * 16 + static_cast<unsigned>(digit ? c - '0' : lower - 'a' + 10);
  }
  return static_cast<char>(byte);
}

std::string one_character(const JsonNode& node) {
  const std::string_view text = node.string();
  size_t first = 0;
  if (!text.empty()) (void)take_character(text, first);
  HEDDLE_CHECK(!text.empty() && first == text.size(), node.path(), " is ", files::quote(text),
               ", expected one character");
  return std::string(text);
}

}  // namespace

TokenDecoder::TokenDecoder(const JsonNode& node) : separates_(node.value().is_null()) {
  for (const JsonNode& part : flat_sequence(node, "decoders")) read_part(part);
}

void TokenDecoder::read_part(const JsonNode& node) {
  const std::string_view type = node.at("type").string();
  const bool changes_bytes = spells_bytes_ && type != "Fuse";
  if (type == "ByteLevel") {
    node.allow_only(
        {"type", "add_prefix_space", "trim_offsets", "use_regex"});  // for pre-tokenizers
    if (!token_steps_.empty() || joins_bytes_ || fuses_ || changes_bytes) {
      throw_error(ErrorCode::kUnsupported, node.path(),
                  " of type ByteLevel follows other decoders");
    }
    spells_bytes_ = true;
  } else if (changes_bytes) {
    throw_error(ErrorCode::kUnsupported, node.path(), " of type ", files::quote(type),
                " follows ByteLevel, which is not supported");
  } else if (type == "Fuse") {
    node.allow_only({"type"});
    fuses_ = true;
  } else if (type == "ByteFallback") {
    node.allow_only({"type"});
    if (fuses_ || joins_bytes_) {
      throw_error(ErrorCode::kUnsupported, node.path(),
                  " of type ByteFallback follows Fuse or another ByteFallback");
    }
    joins_bytes_ = true;
  } else if (type == "Replace") {
    node.allow_only({"type", "pattern", "content"});
    add_step(node,
             Replace{read_pattern(node.at("pattern")), std::string(node.at("content").string())});
  } else if (type == "Strip") {
    add_step(node, read_strip(node));
  } else if (type == "Metaspace") {
    node.allow_only(
        {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    const auto scheme = node.find("prepend_scheme");
    const bool never =
        (scheme && scheme->string() == "never") || !node.boolean_or("add_prefix_space", true);
    add_step(node, Metaspace{Pattern::of_string(one_character(node.at("replacement"))), !never});
  } else {
    node.refuse_type();
  }
}

TokenDecoder::Strip TokenDecoder::read_strip(const JsonNode& node) {
  constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();
  node.allow_only({"type", "content", "start", "stop"});
  return {one_character(node.at("content")), node.at("start").integer(kLongest),
          node.at("stop").integer(kLongest)};
}

void TokenDecoder::add_step(const JsonNode& node, Step step) {
  if (fuses_) {
    if (!std::holds_alternative<Strip>(step) || !text_strip_.empty()) {
      throw_error(ErrorCode::kUnsupported, node.path(), " of type ",
                  files::quote(node.at("type").string()),
                  " follows Fuse, after which one Strip is supported");
    }
    text_strip_.push_back(std::get<Strip>(std::move(step)));
    return;
  }
  if (joins_bytes_ && std::holds_alternative<Metaspace>(step)) {
    throw_error(ErrorCode::kUnsupported, node.path(), " of type Metaspace follows ByteFallback");
  }
  (joins_bytes_ ? part_steps_ : token_steps_).push_back(std::move(step));
}

std::string TokenDecoder::apply(const std::vector<Step>& steps, std::string_view token,
                                bool is_first) {
  std::string result(token);
  for (const Step& step : steps) {
    const std::string before = std::exchange(result, {});
    const std::string_view text = before;
    if (const auto* strip = std::get_if<Strip>(&step)) {
      size_t begin = 0, end = text.size();
      for (int64_t i = 0; i < strip->start && text.substr(begin).starts_with(strip->content); ++i) {
        begin += strip->content.size();
      }
      for (int64_t i = 0; i < strip->stop && text.substr(0, end).ends_with(strip->content); ++i) {
        end -= strip->content.size();
      }
      result = text.substr(begin, std::max(begin, end) - begin);
      continue;
    }
    const auto* replace = std::get_if<Replace>(&step);
    const auto* metaspace = std::get_if<Metaspace>(&step);
    std::string_view content =
        metaspace != nullptr && !(metaspace->drops_first && is_first) ? " " : "";
    if (replace != nullptr) content = replace->content;
    const Pattern& pattern = replace != nullptr ? replace->pattern : metaspace->replacement;
    pattern.split(text, [&](size_t begin, size_t end, bool is_match) {
      result += is_match ? content : text.substr(begin, end - begin);
    });
  }
  return result;
}

std::string TokenDecoder::bytes_of(std::string_view token) const {
  if (spells_bytes_) return bytes_of_spelling(token);
  const std::string changed = apply(token_steps_, token, false);
  if (!joins_bytes_) return changed;
  const auto byte = byte_of(changed);
  return byte ? std::string(1, *byte) : apply(part_steps_, changed, false);
}

void TokenDecoder::push(std::string_view token, DecodeState& state, std::string& text) const {
  const bool is_first = !std::exchange(state.has_tokens, true);
  if (spells_bytes_) {
    text += bytes_of_spelling(token);
    return;
  }
  if (separates_ && !is_first) text += ' ';
  const std::string changed = apply(token_steps_, token, is_first);
  if (!joins_bytes_) return emit(changed, state, text);
  if (const auto byte = byte_of(changed)) {
    state.byte_run += *byte;
    return;
  }
  end_byte_run(state, text);
  emit(apply(part_steps_, changed, false), state, text);
}

/// A run of byte tokens is text as a whole, or else one U+FFFD for each of them.
void TokenDecoder::end_byte_run(DecodeState& state, std::string& text) const {
  const std::string run = std::exchange(state.byte_run, {});
  if (run.empty()) return;
  if (replace_invalid_utf8(run) == run) return emit(apply(part_steps_, run, false), state, text);
  const std::string replaced = apply(part_steps_, "\uFFFD", false);
  for (size_t i = 0; i < run.size(); ++i) emit(replaced, state, text);
}

/// Appends a part, but for what the text's beginning and end lose.
void TokenDecoder::emit(std::string_view part, DecodeState& state, std::string& text) const {
  if (text_strip_.empty()) {
    text += part;
    return;
  }
  const Strip& strip = text_strip_.front();
  const auto drops_more = [&] { return state.num_dropped >= 0 && state.num_dropped < strip.start; };
  while (drops_more() && part.starts_with(strip.content)) {
    part.remove_prefix(strip.content.size());
    ++state.num_dropped;
  }
  if (part.empty()) return;
  state.num_dropped = -1;
  size_t end = part.size();
  const size_t longest = static_cast<size_t>(strip.stop) * strip.content.size();
  while (part.size() - end < longest && part.substr(0, end).ends_with(strip.content)) {
    end -= strip.content.size();
  }
  if (end > 0) text += std::exchange(state.held, {});
  text += part.substr(0, end);
  state.held += part.substr(end);
  if (state.held.size() <= longest) return;
  text += state.held.substr(0, state.held.size() - longest);
  state.held.erase(0, state.held.size() - longest);
}

void TokenDecoder::finish(DecodeState& state, std::string& text) const {
  end_byte_run(state, text);
  state = {};
}

}  // namespace heddle::tokenizer
