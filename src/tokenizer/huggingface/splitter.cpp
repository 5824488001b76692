#include "tokenizer/huggingface/splitter.h"

#include <algorithm>
#include <utility>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/huggingface/characters.h"
#include "tokenizer/huggingface/normalizer.h"

namespace heddle::tokenizer {
namespace {

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string replace_spaces(std::string_view text, std::string_view replacement) {
  std::string result;
  result.reserve(text.size() + replacement.size());
  for (const char c : text) {
    if (c == ' ') {
      result += replacement;
    } else {
      result += c;
    }
  }
  return result;
}

/// 0: a word character, 1: white space, 2: neither.
int word_class(char32_t c) { return is_word_character(c) ? 0 : is_white_space(c) ? 1 : 2; }

}  // namespace

Splitter::Splitter(const JsonNode& node) {
  for (const JsonNode& stage : flat_sequence(node, "pretokenizers")) read_stage(stage);
  if (!stages_.empty() && std::holds_alternative<Spell>(stages_.back())) {
    stages_.pop_back();
    spells_bytes_last_ = true;
  }
}

bool Splitter::prepends_to_first() const {
  return std::ranges::any_of(stages_, [](const Stage& stage) {
    const auto* metaspace = std::get_if<Metaspace>(&stage);
    return metaspace != nullptr && metaspace->prepend == Metaspace::Prepend::kFirst;
  });
}

void Splitter::read_stage(const JsonNode& node) {
  const std::string_view type = node.at("type").string();
  if (type == "ByteLevel") return read_byte_level(node);
  if (type == "Split") {
    node.allow_only({"type", "pattern", "behavior", "invert"});
    stages_.push_back(Split{read_pattern(node.at("pattern")), read_behavior(node.at("behavior")),
                            node.at("invert").boolean()});
  } else if (type == "Metaspace") {
    stages_.push_back(read_metaspace(node));
  } else if (type == "Digits") {
    node.allow_only({"type", "individual_digits"});
    const bool individual = node.at("individual_digits").boolean();
    stages_.push_back(
        SplitByCharacter{is_numeric, individual ? Behavior::kIsolated : Behavior::kContiguous});
  } else if (type == "Punctuation") {
    node.allow_only({"type", "behavior"});
    const auto behavior = node.find("behavior");
    stages_.push_back(SplitByCharacter{is_punctuation,
                                       behavior ? read_behavior(*behavior) : Behavior::kIsolated});
  } else if (type == "WhitespaceSplit") {
    node.allow_only({"type"});
    stages_.push_back(SplitByCharacter{is_white_space, Behavior::kRemoved});
  } else if (type == "Whitespace") {
    node.allow_only({"type"});
    stages_.push_back(Words{});
  } else {
    node.refuse_type();
  }
}

void Splitter::read_byte_level(const JsonNode& node) {
  node.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (node.at("add_prefix_space").boolean()) stages_.push_back(AddPrefixSpace{});
  (void)node.boolean_or("trim_offsets", true);  // changes no id
  if (node.boolean_or("use_regex", true)) {
    stages_.push_back(
        Split{Pattern::of_expression(kGpt2, node.path()), Behavior::kIsolated, false});
  }
  stages_.push_back(Spell{});
}

Splitter::Behavior Splitter::read_behavior(const JsonNode& node) {
  constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  for (const auto& [name, behavior] : kBehaviors) {
    if (name == node.string()) return behavior;
  }
  throw_error(ErrorCode::kUnsupported, node.path(), " is ", files::quote(node.string()),
              ", supported: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

Splitter::Metaspace Splitter::read_metaspace(const JsonNode& node) {
  using Prepend = Metaspace::Prepend;
  node.allow_only(
      {"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const std::string replacement(node.at("replacement").string());
  size_t first = 0;
  if (!replacement.empty()) (void)take_character(replacement, first);
  HEDDLE_CHECK(!replacement.empty() && first == replacement.size(), node.path(), ".replacement is ",
               files::quote(replacement), ", expected one character");
  Prepend prepend = Prepend::kAlways;
  if (const auto scheme = node.find("prepend_scheme")) {
    const std::string_view name = scheme->string();
    HEDDLE_CHECK(name == "first" || name == "never" || name == "always", scheme->path(), " is ",
                 files::quote(name), ", expected first, never or always");
    prepend = name == "first"   ? Prepend::kFirst
              : name == "never" ? Prepend::kNever
                                : Prepend::kAlways;
    HEDDLE_CHECK(prepend == Prepend::kNever || node.boolean_or("add_prefix_space", true),
                 node.path(), " has a prepend_scheme of ", name,
                 ", but an add_prefix_space of false");
  }
  if (!node.boolean_or("add_prefix_space", true)) prepend = Prepend::kNever;
  return {prepend, replacement, node.boolean_or("split", true), Pattern::of_string(replacement)};
}

/// What the parts become that are not removed.
void Splitter::merge(Behavior behavior, std::vector<Part>& parts) {
  if (behavior == Behavior::kRemoved) {
    std::erase_if(parts, [](const Part& part) { return part.is_match; });
    return;
  }
  if (behavior == Behavior::kIsolated) return;
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::ranges::reverse(parts);
  size_t count = 0;
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins =
        behavior == Behavior::kContiguous ? part.is_match == previous : part.is_match && !previous;
    previous = part.is_match;
    if (joins && count > 0) {
      (backwards ? parts[count - 1].begin : parts[count - 1].end) =
          backwards ? part.begin : part.end;
    } else {
      parts[count++] = part;
    }
  }
  parts.resize(count);
  if (backwards) std::ranges::reverse(parts);
}

std::vector<Splitter::Part> Splitter::parts_of(const Stage& stage, std::string_view text) {
  std::vector<Part> parts;
  const auto add = [&](size_t begin, size_t end, bool is_match) {
    parts.push_back({begin, end, is_match});
  };
  if (const auto* by_character = std::get_if<SplitByCharacter>(&stage)) {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const bool is_match = by_character->is_delimiter(take_character(text, at));
      if (!is_match && !parts.empty() && !parts.back().is_match) {
        parts.back().end = at;
      } else {
        add(begin, at, is_match);
      }
    }
    merge(by_character->behavior, parts);
  } else if (const auto* by_pattern = std::get_if<Split>(&stage)) {
    by_pattern->pattern.split(text, [&](size_t begin, size_t end, bool is_match) {
      add(begin, end, is_match != by_pattern->invert);
    });
    merge(by_pattern->behavior, parts);
  } else {  // Words
    int last = 1;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const int kind = word_class(take_character(text, at));
      if (kind != 1 && kind == last) {
        parts.back().end = at;
      } else if (kind != 1) {
        add(begin, at, false);
      }
      last = kind;
    }
  }
  return parts;
}

void Splitter::split(std::string_view text, bool begins_text,
                     FunctionRef<void(std::string_view)> word) const {
  run(0, text, begins_text, word);
}

void Splitter::run(size_t stage, std::string_view text, bool begins_text,
                   FunctionRef<void(std::string_view)> word) const {
  if (text.empty()) return;
  if (stage == stages_.size()) return word(text);
  const Stage& current = stages_[stage];
  const bool rewrites = std::holds_alternative<AddPrefixSpace>(current) ||
                        std::holds_alternative<Spell>(current) ||
                        std::holds_alternative<Metaspace>(current);
  if (rewrites) return run_rewriting(current, stage + 1, text, begins_text, word);
  const auto* by_pattern = std::get_if<Split>(&current);
  if (by_pattern != nullptr && by_pattern->behavior == Behavior::kIsolated) {  // most often
    by_pattern->pattern.split(text, [&](size_t begin, size_t end, bool) {
      run(stage + 1, text.substr(begin, end - begin), begins_text && begin == 0, word);
    });
    return;
  }
  for (const Part& part : parts_of(current, text)) {
    run(stage + 1, text.substr(part.begin, part.end - part.begin), begins_text && part.begin == 0,
        word);
  }
}

void Splitter::run_rewriting(const Stage& stage, size_t next, std::string_view text,
                             bool begins_text, FunctionRef<void(std::string_view)> word) const {
  if (std::holds_alternative<AddPrefixSpace>(stage)) {
    if (text.starts_with(' ')) return run(next, text, begins_text, word);
    return run(next, ' ' + std::string(text), begins_text, word);
  }
  if (std::holds_alternative<Spell>(stage)) {
    return run(next, spelling_of_bytes(text), begins_text, word);
  }
  const auto& metaspace = std::get<Metaspace>(stage);
  std::string spelled = replace_spaces(text, metaspace.replacement);
  const bool prepends = metaspace.prepend == Metaspace::Prepend::kAlways ||
                        (metaspace.prepend == Metaspace::Prepend::kFirst && begins_text);
  if (prepends && !spelled.starts_with(metaspace.replacement)) {
    spelled.insert(0, metaspace.replacement);
  }
  if (!metaspace.split) return run(next, spelled, begins_text, word);
  std::vector<Part> parts;
  metaspace.pattern.split(spelled, [&](size_t begin, size_t end, bool is_match) {
    parts.push_back({begin, end, is_match});
  });
  merge(Behavior::kMergedWithNext, parts);
  for (const Part& part : parts) {
    run(next, std::string_view(spelled).substr(part.begin, part.end - part.begin),
        begins_text && part.begin == 0, word);
  }
}

}  // namespace heddle::tokenizer
