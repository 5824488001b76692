#include "tokenizer/huggingface/normalizer.h"

#include <algorithm>
#include <utility>

#include "heddle/core/error.h"

#include "tokenizer/byte_alphabet.h"

namespace heddle::tokenizer {
namespace {

constexpr size_t kMaxGrowth = 64, kMoreBytes = size_t{64} << 10;

void check_length(size_t size, size_t longest) {
  if (size > longest) {
    throw_error(ErrorCode::kUnsupported, "the normalizer makes a text of more than ", longest,
                " bytes");
  }
}

std::string strip(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t next = begin;
    if (!is_white_space(take_character(text, next))) break;
    begin = next;
  }
  text.remove_prefix(begin);
  while (right && !text.empty()) {
    size_t at = last_character(text);
    const size_t last = at;
    if (!is_white_space(take_character(text, at))) break;
    text.remove_suffix(text.size() - last);
  }
  return std::string(text);
}

}  // namespace

Pattern read_pattern(const JsonNode& node) {
  node.allow_only({"String", "Regex"});
  HEDDLE_CHECK(node.object().size() == 1, node.path(), " has ", node.object().size(),
               " of String and Regex, expected one");
  if (const auto expression = node.find("Regex")) {
    return Pattern::of_expression(expression->string(), expression->path());
  }
  const JsonNode text = node.at("String");
  if (text.string().empty()) {
    throw_error(ErrorCode::kUnsupported, text.path(), " is empty, which is not supported");
  }
  return Pattern::of_string(std::string(text.string()));
}

Normalizer::Normalizer(const JsonNode& node) {
  for (const JsonNode& step : flat_sequence(node, "normalizers")) {
    steps_.push_back(read_step(step));
  }
}

Normalizer::Step Normalizer::read_step(const JsonNode& node) {
  constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                {"NFD", NormalForm::kNfd},
                                                                {"NFKC", NormalForm::kNfkc},
                                                                {"NFKD", NormalForm::kNfkd}};
  const std::string_view type = node.at("type").string();
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    node.allow_only({"type"});
    return form;
  }
  if (type == "Lowercase" || type == "ByteLevel") {
    node.allow_only({"type"});
    return type == "Lowercase" ? Step(Lowercase{}) : Step(Spell{});
  }
  if (type == "Prepend") {
    node.allow_only({"type", "prepend"});
    return Prepend{std::string(node.at("prepend").string())};
  }
  if (type == "Replace") {
    node.allow_only({"type", "pattern", "content"});
    return Replace{read_pattern(node.at("pattern")), std::string(node.at("content").string())};
  }
  if (type == "Strip") {
    node.allow_only({"type", "strip_left", "strip_right"});
    return Strip{node.at("strip_left").boolean(), node.at("strip_right").boolean()};
  }
  node.refuse_type();
}

bool Normalizer::keeps_beginning() const {
  return std::ranges::all_of(steps_, [](const Step& step) {
    const auto* replace = std::get_if<Replace>(&step);
    if (replace != nullptr) return !replace->content.empty() && replace->pattern.is_string();
    return !std::holds_alternative<Strip>(step);
  });
}

std::string Normalizer::apply(std::string_view text) const {
  const size_t longest = text.size() * kMaxGrowth + kMoreBytes;
  std::string result(text);
  for (const Step& step : steps_) {
    result = apply(step, result, longest);
    check_length(result.size(), longest);
  }
  return result;
}

std::string Normalizer::apply(const Step& step, std::string_view text, size_t longest) {
  if (const auto* form = std::get_if<NormalForm>(&step)) return to_normal_form(text, *form);
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    return text.empty() ? std::string() : prepend->content + std::string(text);
  }
  if (const auto* ends = std::get_if<Strip>(&step)) return strip(text, ends->left, ends->right);
  if (std::holds_alternative<Lowercase>(step)) return to_lower(text);
  if (std::holds_alternative<Spell>(step)) return spelling_of_bytes(text);
  const auto& [pattern, content] = std::get<Replace>(step);
  std::string result;
  pattern.split(text, [&, &content = content](size_t begin, size_t end, bool is_match) {
    result += is_match ? std::string_view(content) : text.substr(begin, end - begin);
    check_length(result.size(), longest);
  });
  return result;
}

}  // namespace heddle::tokenizer
