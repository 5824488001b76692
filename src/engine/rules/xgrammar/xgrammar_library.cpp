// The functions of grammar_library.h by xgrammar. cmake/heddle_xgrammar.cmake links this source and
// xgrammar to one object, of which these functions alone have names that others see.
#include <utility>
#include <variant>
#include <xgrammar/xgrammar.h>

#include "heddle/core/error.h"

#include "answers/call_grammar.h"
#include "engine/rules/grammar/grammar_library.h"
#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"

namespace {

constexpr int kWarning = 2;  // the library's level

/// What the library warns of first while it compiles: something in the format that it leaves out.
thread_local std::string* first_warning = nullptr;

}  // namespace

namespace xgrammar {

void LogFatalImpl(const std::string& /*file*/, int /*line*/, const std::string& message) {
  throw heddle::Error(heddle::ErrorCode::kInvalidArgument, message);
}
void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level,
                    const std::string& message) {
  if (level < kWarning || first_warning == nullptr) return;
  if (first_warning->empty()) *first_warning = message;
}

}  // namespace xgrammar

namespace heddle::grammar {
namespace {

using files::JsonObject;

/// Nesting in a grammar or pattern, and of a schema's references: each level is a call.
constexpr int kMaxDepth = 1000;

class XgrammarTokenSet final : public TokenSet {
 public:
  explicit XgrammarTokenSet(const TokenBytes& tokens)
      : info(tokens.tokens, xgrammar::VocabType::RAW, static_cast<int>(tokens.tokens.size()),
             tokens.end_tokens) {}
  xgrammar::TokenizerInfo info;
};

class XgrammarMatcher final : public Matcher {
 public:
  explicit XgrammarMatcher(const xgrammar::CompiledGrammar& grammar) : matcher_(grammar) {}

  bool accept(int32_t token) override { return matcher_.AcceptToken(token); }
  void rewind(int64_t num_tokens) override { matcher_.Rollback(static_cast<int>(num_tokens)); }
  bool accept_text(const std::string& text) override { return matcher_.AcceptString(text); }
  bool is_complete() const override { return matcher_.IsCompleted() || matcher_.IsTerminated(); }
  bool has_ended() const override { return matcher_.IsTerminated(); }
  void fill(std::span<int32_t> words) override {
    int64_t shape[] = {std::ssize(words)};
    DLTensor tensor{.data = words.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = {kDLInt, 32, 1},
                    .shape = shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    matcher_.FillNextTokenBitmask(&tensor);
  }

 private:
  xgrammar::GrammarMatcher matcher_;
};

class XgrammarFormat final : public CompiledFormat {
 public:
  explicit XgrammarFormat(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}
  size_t num_bytes() const override { return grammar_.MemorySizeBytes(); }
  std::unique_ptr<Matcher> matcher() const override {
    return std::make_unique<XgrammarMatcher>(grammar_);
  }

 private:
  xgrammar::CompiledGrammar grammar_;
};

/// One of the texts, as a structural tag.
std::string tag_of(const std::vector<std::string>& choices) {
  return files::json_text(
      JsonObject{{"type", "structural_tag"}, {"format", answers::choice_tag(choices)}});
}

/// The tag with its grammars in Lark in EBNF, since the library takes that alone within tags. Here
/// they are {"type": "grammar", "syntax": "lark", "grammar": ...}.
std::string with_ebnf(const std::string& tag, const xgrammar::TokenizerInfo& info) {
  if (tag.find("\"syntax\"") == std::string::npos) return tag;
  files::JsonTree tree = files::parse_json(tag, "format", {.depth = 200});
  std::vector<files::Json*> open = {&*tree};
  while (!open.empty()) {
    files::Json& at = *open.back();
    open.pop_back();
    const files::Json* syntax = files::find_member(at, "syntax");
    const files::Json* source = files::find_member(at, "grammar");
    if (syntax != nullptr && files::is_text(*syntax, "lark") && source != nullptr &&
        source->is_string()) {
      const std::string lark(files::text_of(*source));
      at = JsonObject{{"type", "grammar"},
                      {"grammar", xgrammar::Grammar::FromLark(lark, info).ToString()}};
    } else if (at.is_array()) {
      for (files::Json& element : at.get_array()) open.push_back(&element);
    } else if (at.is_object()) {
      for (auto&& [key, value] : at.get_object()) {
        if (key != "json_schema") open.push_back(&value);
      }
    }
  }
  return files::json_text(*tree);
}

xgrammar::Grammar grammar_of_tag(const std::string& tag, const xgrammar::TokenizerInfo& info) {
  auto result = xgrammar::Grammar::FromStructuralTag(with_ebnf(tag, info), info);
  if (auto* const grammar = std::get_if<xgrammar::Grammar>(&result)) return std::move(*grammar);
  const auto& error = std::get<xgrammar::StructuralTagError>(result);
  throw_error(ErrorCode::kInvalidArgument,
              std::visit([](const auto& each) { return std::string(each.what()); }, error));
}

xgrammar::Grammar grammar_of(const AnswerFormat& format, const xgrammar::TokenizerInfo& info) {
  using Kind = AnswerFormat::Kind;
  switch (format.kind) {
    case Kind::kText:
    case Kind::kJson:
    case Kind::kJsonSchema: break;
    case Kind::kRegex: return xgrammar::Grammar::FromRegex(format.source);
    case Kind::kChoice: return grammar_of_tag(tag_of(format.choices), info);
    case Kind::kGrammar: return xgrammar::Grammar::FromEBNF(format.source);
    case Kind::kLark: return xgrammar::Grammar::FromLark(format.source, info);
    case Kind::kStructuralTag: return grammar_of_tag(format.source, info);
  }
  throw_error(ErrorCode::kInvalidArgument, "a free text has no grammar");
}

}  // namespace

bool has_library() { return true; }

std::shared_ptr<const TokenSet> make_token_set(TokenBytes tokens) {
  return std::make_shared<XgrammarTokenSet>(tokens);
}

std::shared_ptr<const CompiledFormat> compile(const TokenSet& token_set,
                                              const AnswerFormat& format) {
  xgrammar::SetMaxRecursionDepth(kMaxDepth);
  const auto& info = static_cast<const XgrammarTokenSet&>(token_set).info;
  xgrammar::GrammarCompiler compiler(info, 1, false);
  std::string warning;
  first_warning = &warning;
  const auto forget = std::unique_ptr<void, void (*)(void*)>(
      &warning, [](void* /*warning*/) { first_warning = nullptr; });
  auto compiled =
      std::make_shared<XgrammarFormat>(compiler.CompileGrammar(grammar_of(format, info)));
  // Nothing that a format says is left out in silence.
  HEDDLE_CHECK(warning.empty(), warning);
  return compiled;
}

}  // namespace heddle::grammar
