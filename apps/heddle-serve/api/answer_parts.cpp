#include "api/answer_parts.h"

#include <algorithm>
#include <utility>

namespace heddle::serve {

AnswerParts::AnswerParts(const Generation& generation, size_t prompt) {
  if (!generation.parses(prompt)) return;
  parser_.emplace(generation.style_of(prompt), generation.parser_of(prompt));
}

std::vector<PartChange> AnswerParts::push(std::string_view text) {
  if (parser_) {
    take(parser_->push(text));
  } else if (!text.empty()) {
    if (!is_open_) begin({.kind = PartKind::kText});
    grow(text);
  }
  return std::exchange(changes_, {});
}

std::vector<PartChange> AnswerParts::finish() {
  if (parser_) take(parser_->finish());
  if (parts_.empty() && !spaces_.empty()) {
    const std::string spaces = std::exchange(spaces_, {});
    begin({.kind = PartKind::kText});
    grow(spaces);
  }
  if (is_open_) end();
  return std::exchange(changes_, {});
}

std::vector<PartChange> AnswerParts::finish_with_part() {
  std::vector<PartChange> changes = finish();
  if (!parts_.empty()) return changes;
  begin({.kind = PartKind::kText});
  end();
  return std::exchange(changes_, {});
}

bool AnswerParts::has_calls() const {
  return std::ranges::any_of(parts_,
                             [](const AnswerPart& part) { return part.kind == PartKind::kCall; });
}

void AnswerParts::take(const answers::AnswerDelta& delta) {
  if (!delta.reasoning.empty()) {
    if (!is_open(PartKind::kThoughts)) begin({.kind = PartKind::kThoughts});
    grow(delta.reasoning);
  }
  if (!delta.text.empty()) add_text(delta.text);
  for (const answers::CallDelta& call : delta.calls) {
    if (!call.id.empty()) begin({.kind = PartKind::kCall, .id = call.id, .name = call.name});
    if (!call.arguments.empty()) grow(call.arguments);
  }
}

void AnswerParts::add_text(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  if (is_open(PartKind::kText)) return grow(text);
  spaces_ += text;
  if (text.find_first_not_of(kSpaces) == std::string_view::npos) return;
  const std::string whole = std::exchange(spaces_, {});
  begin({.kind = PartKind::kText});
  grow(whole);
}

void AnswerParts::begin(AnswerPart part) {
  if (is_open_) end();
  spaces_.clear();
  is_open_ = true;
  changes_.push_back({.kind = PartChange::Kind::kBegins, .part = parts_.size()});
  parts_.push_back(std::move(part));
}

void AnswerParts::grow(std::string_view text) {
  parts_.back().text += text;
  changes_.push_back(
      {.kind = PartChange::Kind::kGrows, .part = parts_.size() - 1, .added = std::string(text)});
}

void AnswerParts::end() {
  is_open_ = false;
  changes_.push_back({.kind = PartChange::Kind::kEnds, .part = parts_.size() - 1});
}

bool AnswerParts::is_open(PartKind kind) const { return is_open_ && parts_.back().kind == kind; }

std::string joined(const std::vector<AnswerPart>& parts, PartKind kind) {
  std::string all;
  for (const AnswerPart& part : parts) {
    if (part.kind == kind) all += part.text;
  }
  return all;
}

files::JsonArray calls_of(const std::vector<AnswerPart>& parts) {
  files::JsonArray calls;
  for (const AnswerPart& part : parts) {
    if (part.kind != PartKind::kCall) continue;
    calls.push_back(
        files::JsonObject{{"id", part.id},
                          {"type", "function"},
                          {"function", {{"name", part.name}, {"arguments", part.text}}}});
  }
  return calls;
}

int64_t count_thoughts(const Generation& generation, const Completion& completion, size_t prompt) {
  const answers::ReasoningStyle& style = generation.style_of(prompt).reasoning;
  const bool may_think = generation.parser_of(prompt).finds_reasoning && !style.end.empty();
  if (!may_think || completion.token_texts == nullptr) return 0;
  std::string text;
  bool has_begun = style.has_begun;
  size_t searched = 0;
  for (size_t i = 0; i < completion.token_ids.size(); ++i) {
    text += completion.token_texts->bytes(completion.token_ids[i]);
    if (!has_begun) {
      const size_t first = text.find_first_not_of(" \t\r\n");
      if (first == std::string::npos) continue;
      const std::string_view rest = std::string_view(text).substr(first);
      has_begun = rest.starts_with(style.begin);
      if (!has_begun && !style.begin.starts_with(rest)) return 0;
    }
    const size_t from = searched - std::min(searched, style.end.size());
    if (has_begun && text.find(style.end, from) != std::string::npos) {
      return static_cast<int64_t>(i + 1);
    }
    searched = text.size();
  }
  return has_begun ? static_cast<int64_t>(completion.token_ids.size()) : 0;
}

}  // namespace heddle::serve
